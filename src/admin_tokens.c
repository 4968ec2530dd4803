/*
 * Reads the file of bearer tokens, and says what a presented one may do.
 *
 * A mistake in the file is told with its line and never with its text: the text may be a token
 * that somebody wrote there instead of its hash. A token is compared by its hash and with all of
 * them, so that the time it takes tells nothing of how near a guess was.
 */
#include "admin_tokens.h"

#include "digest.h"
#include "secret_file.h"

#include <stdio.h>
#include <time.h>

#define FILE_MAX   ((size_t)256 * 1024)
#define TOKENS_MAX 1000U
#define NAME_MAX_  64U
#define HASH_BYTES 32U
#define NEVER      INT64_MAX

struct token {
	enum admin_role role;
	unsigned line;
	char name[NAME_MAX_ + 1];
	unsigned char hash[HASH_BYTES];
	int64_t expires; /* seconds since 1970; NEVER */
};

struct admin_tokens {
	size_t n;
	struct token at[TOKENS_MAX];
};

static const struct {
	const char *name;
	enum admin_role role;
} roles[] = { { "viewer", ADMIN_VIEWER }, { "operator", ADMIN_OPERATOR } };

static bool one_of(char c, const char *any)
{
	return c != 0 && strchr(any, c);
}

static bool read_name(struct span word)
{
	for (size_t i = 0; i < word.len; i++)
		if (word.at[i] <= 0x20 || word.at[i] >= 0x7f)
			return false;
	return word.len > 0 && word.len <= NAME_MAX_;
}

static bool read_role(struct span word, struct token *token)
{
	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (span_equal(word, span_of(roles[i].name))) {
			token->role = roles[i].role;
			return true;
		}
	return false;
}

static bool read_hash(struct span word, struct token *token)
{
	if (word.len != sizeof(token->hash) * 2)
		return false;
	for (size_t i = 0; i < word.len; i++) {
		if (!http_is(word.at[i], HTTP_HEX))
			return false;
		token->hash[i / 2] =
			(unsigned char)(token->hash[i / 2] << 4 | http_hex(word.at[i]));
	}
	return true;
}

static bool take_byte(struct span *in, const char *any)
{
	if (in->len == 0 || !one_of(in->at[0], any))
		return false;
	in->at++;
	in->len--;
	return true;
}

/* A number of exactly so many digits, at most `most`. */
static bool take_number(struct span *in, size_t digits, int most, int *out)
{
	*out = 0;
	for (size_t i = 0; i < digits; i++) {
		if (!take_byte(in, "0123456789"))
			return false;
		*out = *out * 10 + (in->at[-1] - '0');
	}
	return *out <= most;
}

/* "Z", "+02:00" or "-02:00": seconds east of Greenwich. */
static bool take_zone(struct span *in, int64_t *east)
{
	int hours = 0;
	int minutes = 0;
	bool west = in->len > 0 && in->at[0] == '-';

	*east = 0;
	if (take_byte(in, "Zz"))
		return true;
	if (!take_byte(in, "+-") || !take_number(in, 2, 23, &hours) || !take_byte(in, ":") ||
	    !take_number(in, 2, 59, &minutes))
		return false;
	*east = (west ? -60 : 60) * ((int64_t)hours * 60 + minutes);
	return true;
}

static bool take_date(struct span *in, struct tm *tm)
{
	if (!take_number(in, 4, 9999, &tm->tm_year) || !take_byte(in, "-") ||
	    !take_number(in, 2, 12, &tm->tm_mon) || !take_byte(in, "-") ||
	    !take_number(in, 2, 31, &tm->tm_mday))
		return false;
	tm->tm_year -= 1900;
	tm->tm_mon -= 1;
	return true;
}

/* A leap second is the same instant as the second that follows it. */
static bool take_clock(struct span *in, struct tm *tm)
{
	if (!take_number(in, 2, 23, &tm->tm_hour) || !take_byte(in, ":") ||
	    !take_number(in, 2, 59, &tm->tm_min) || !take_byte(in, ":") ||
	    !take_number(in, 2, 60, &tm->tm_sec))
		return false;
	if (!take_byte(in, "."))
		return true;
	if (!take_byte(in, "0123456789"))
		return false;
	while (take_byte(in, "0123456789"))
		continue;
	return true;
}

/* RFC 3339. A day that its month does not have comes back from timegm as another one. */
static bool read_time(struct span word, int64_t *seconds)
{
	struct tm tm = { 0 };
	struct tm day;
	int64_t east = 0;

	if (!take_date(&word, &tm) || !take_byte(&word, "Tt"))
		return false;
	day = tm;
	if (!take_clock(&word, &tm) || !take_zone(&word, &east) || word.len > 0)
		return false;
	timegm(&day);
	if (day.tm_mday != tm.tm_mday || day.tm_mon != tm.tm_mon)
		return false;
	*seconds = timegm(&tm) - east;
	return true;
}

static bool read_expires(struct span word, struct token *token)
{
	token->expires = NEVER;
	return word.len == 0 || read_time(word, &token->expires);
}

static const struct token *same_hash(const struct admin_tokens *tokens,
				     const struct token *token)
{
	for (size_t i = 0; i < tokens->n; i++)
		if (memcmp(tokens->at[i].hash, token->hash, HASH_BYTES) == 0)
			return &tokens->at[i];
	return NULL;
}

/* What is wrong with a line; NULL: nothing. */
static const char *read_line(struct span line, struct admin_tokens *tokens, unsigned number)
{
	struct token token = { .line = number };
	struct span name = secret_file_word(&line);

	if (name.len == 0 || name.at[0] == '#')
		return NULL;
	if (tokens->n == TOKENS_MAX)
		return "there are too many tokens";
	if (!read_name(name))
		return "a name is 1 to 64 visible characters";
	memcpy(token.name, name.at, name.len);
	if (!read_role(secret_file_word(&line), &token))
		return "behind the name stands a role: viewer or operator";
	if (!read_hash(secret_file_word(&line), &token))
		return "behind the role stand 64 hex digits: printf %s TOKEN | sha256sum";
	if (!read_expires(secret_file_word(&line), &token))
		return "the expiry is not a time like 2030-01-31T12:00:00Z";
	if (secret_file_word(&line).len > 0)
		return "a line is: name role sha256-of-token [expires]";
	if (same_hash(tokens, &token))
		return "this token stands on an earlier line, too";
	tokens->at[tokens->n++] = token;
	return NULL;
}

static bool read_lines(const char *file, struct span text, struct admin_tokens *tokens,
		       char why[256])
{
	for (unsigned number = 1; text.len > 0; number++) {
		const char *wrong = read_line(secret_file_line(&text), tokens, number);
		if (wrong) {
			snprintf(why, 256, "%s:%u: %s", file, number, wrong);
			return false;
		}
	}
	return true;
}

struct admin_tokens *admin_tokens_load(const char *file, char why[256])
{
	struct admin_tokens *tokens = mem_alloc(sizeof(*tokens));
	struct buf text;

	buf_init(&text, FILE_MAX);
	if (!secret_file_read(file, &text, why) ||
	    !read_lines(file, buf_view(&text), tokens, why)) {
		admin_tokens_free(tokens);
		tokens = NULL;
	}
	buf_fini(&text);
	return tokens;
}

void admin_tokens_free(struct admin_tokens *tokens)
{
	mem_free(tokens);
}

size_t admin_tokens_count(const struct admin_tokens *tokens)
{
	return tokens->n;
}

static bool equal_slowly(const unsigned char *a, const unsigned char *b)
{
	volatile unsigned char differences = 0;

	for (size_t i = 0; i < HASH_BYTES; i++)
		differences = (unsigned char)(differences | (a[i] ^ b[i]));
	return differences == 0;
}

enum admin_role admin_tokens_role(const struct admin_tokens *tokens, struct span presented,
				  int64_t now, const char **name)
{
	enum admin_role role = ADMIN_ANYBODY;
	unsigned char hashed[HASH_BYTES];
	struct hash *hash = hash_new();

	hash_add(hash, presented.at, presented.len);
	hash_end(hash, hashed);
	hash_free(hash);
	*name = "";
	for (size_t i = 0; i < tokens->n; i++)
		if (equal_slowly(tokens->at[i].hash, hashed) && now < tokens->at[i].expires) {
			role = tokens->at[i].role;
			*name = tokens->at[i].name;
		}
	return role;
}
