/*
 * One option's value: from the file's item to the field, with its unit, its range and its words.
 * A row of `types` is what a type needs: how it is read, how two of it are compared. A default
 * goes the same way as a value of the file, so that it obeys the same range.
 */
#include "json_text.h"
#include "settings_internal.h"

#include <arpa/inet.h>
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static bool wrong(struct loader *loader, const struct option *option, const struct item *item,
		  const char *expected)
{
	settings_error(loader, item, "`%s` must be %s", option->name, expected);
	return false;
}

static int64_t bound(const char *text, enum unit units)
{
	int64_t value = 0;
	bool ok = units == UNIT_NONE || settings_measure(text, units, &value);

	assert(ok); /* options.def */
	(void)ok;
	return units == UNIT_NONE ? strtoll(text, NULL, 10) : value;
}

static bool in_range(struct loader *loader, const struct option *option,
		     const struct item *item, enum unit units, int64_t value)
{
	bool low = option->min && !option_required(option) && value < bound(option->min, units);

	if (!low && !(option->max && value > bound(option->max, units)))
		return true;
	settings_error(loader, item, "`%s` must be from %s to %s", option->name, option->min,
		       option->max);
	return false;
}

static bool set_text(struct loader *loader, const struct option *option,
		     const struct item *item, void *field)
{
	option_text *text = field;

	if (item->kind != ITEM_TEXT)
		return wrong(loader, option, item, "a text in quotes");
	*text = item->text;
	return true;
}

/* Relative to the file that names it; absolute, since a daemon may change its directory. */
static bool set_file(struct loader *loader, const struct option *option,
		     const struct item *item, void *field)
{
	option_file *file = field;
	const char *slash = strrchr(item->file, '/');
	char cwd[PATH_MAX];

	if (item->kind != ITEM_TEXT || !item->text[0])
		return wrong(loader, option, item, "the path of a file, in quotes");
	*file = item->text;
	if (slash && **file != '/')
		*file = arena_format(loader->arena, "%.*s/%s", (int)(slash - item->file),
				     item->file, item->text)
				.at;
	if (**file == '/' || item->file[0] == '/')
		return true;
	if (!getcwd(cwd, sizeof(cwd)))
		return wrong(loader, option, item, "absolute: the working directory is gone");
	*file = arena_format(loader->arena, "%s/%s", cwd, *file).at;
	return true;
}

static bool set_texts(struct loader *loader, const struct option *option,
		      const struct item *item, void *field)
{
	option_texts *texts = field;
	const char **at = NULL;

	if (item->kind != ITEM_LIST)
		return wrong(loader, option, item, "a list of texts, such as [\"a\", \"b\"]");
	at = arena_alloc(loader->arena, item->n * sizeof(*at));
	for (size_t i = 0; i < item->n; i++) {
		if (item->at[i].kind != ITEM_TEXT)
			return wrong(loader, option, &item->at[i],
				     "a list of texts, each in quotes");
		at[i] = item->at[i].text;
	}
	*texts = (option_texts){ at, item->n };
	return true;
}

static bool parse_bits(const char *text, unsigned width, unsigned *bits)
{
	size_t digits = strspn(text, "0123456789");

	if (digits == 0 || digits > 3 || text[digits])
		return false;
	*bits = (unsigned)strtoul(text, NULL, 10);
	return *bits <= width;
}

/* 10.0.0.0/8, ::1, and so on; the bits behind the prefix are cleared. */
static bool parse_cidr(const char *text, struct cidr *cidr)
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	size_t len = strcspn(text, "/");
	char address[INET6_ADDRSTRLEN];
	unsigned width = memchr(text, ':', len) ? 128 : 32;

	if (len >= sizeof(address))
		return false;
	memcpy(address, text, len);
	address[len] = 0;
	memcpy(cidr->address, mapped, sizeof(mapped));
	if (inet_pton(width == 32 ? AF_INET : AF_INET6, address,
		      cidr->address + (width == 32 ? sizeof(mapped) : 0)) != 1)
		return false;
	cidr->bits = width;
	if (text[len] && !parse_bits(text + len + 1, width, &cidr->bits))
		return false;
	cidr->bits += 128 - width;
	for (unsigned bit = cidr->bits; bit < 128; bit++)
		cidr->address[bit / 8] &= (unsigned char)~(0x80U >> (bit % 8));
	return true;
}

static bool set_cidrs(struct loader *loader, const struct option *option,
		      const struct item *item, void *field)
{
	option_cidrs *cidrs = field;
	struct cidr *at = NULL;
	size_t n = 0;

	if (item->kind != ITEM_LIST)
		return wrong(
			loader, option, item,
			"a list of addresses, such as [\"127.0.0.0/8\", \"::1\", \"unix\"]");
	*cidrs = (option_cidrs){ 0 };
	at = arena_alloc(loader->arena, item->n * sizeof(*at));
	for (size_t i = 0; i < item->n; i++) {
		const struct item *one = &item->at[i];
		if (one->kind == ITEM_TEXT && strcmp(one->text, "unix") == 0)
			cidrs->unix_sockets = true;
		else if (one->kind == ITEM_TEXT && parse_cidr(one->text, &at[n]))
			n++;
		else
			return wrong(loader, option, one,
				     "a list of addresses: ADDRESS, ADDRESS/BITS or \"unix\"");
	}
	cidrs->at = at;
	cidrs->n = n;
	return true;
}

static bool set_count(struct loader *loader, const struct option *option,
		      const struct item *item, void *field)
{
	option_count *count = field;

	if (item->kind != ITEM_NUMBER)
		return wrong(loader, option, item, "a whole number without quotes");
	*count = item->number;
	return in_range(loader, option, item, UNIT_NONE, item->number);
}

static bool set_duration(struct loader *loader, const struct option *option,
			 const struct item *item, void *field)
{
	option_duration *duration = field;

	if (item->kind == ITEM_NUMBER) {
		settings_error(loader, item,
			       "`%s` needs a unit: \"%llds\" for seconds, \"%lldms\" …",
			       option->name, (long long)item->number, (long long)item->number);
		return false;
	}
	if (item->kind != ITEM_TEXT || !settings_measure(item->text, UNIT_TIME, duration))
		return wrong(
			loader, option, item,
			"a duration: a whole number and one of ms, s, m, h, d, as in \"30s\"");
	return in_range(loader, option, item, UNIT_TIME, *duration);
}

static bool set_size(struct loader *loader, const struct option *option,
		     const struct item *item, void *field)
{
	option_size *size = field;

	if (item->kind == ITEM_NUMBER) {
		settings_error(loader, item,
			       "`%s` needs a unit: \"%lldB\" for bytes, \"%lldKiB\" …",
			       option->name, (long long)item->number, (long long)item->number);
		return false;
	}
	if (item->kind != ITEM_TEXT || !settings_measure(item->text, UNIT_SIZE, size))
		return wrong(loader, option, item,
			     "a size: a whole number and one of B, KiB, MiB, GiB, TiB, as in "
			     "\"1MiB\"");
	return in_range(loader, option, item, UNIT_SIZE, *size);
}

static bool set_flag(struct loader *loader, const struct option *option,
		     const struct item *item, void *field)
{
	option_flag *flag = field;

	if (item->kind != ITEM_FLAG)
		return wrong(loader, option, item, "true or false, without quotes");
	*flag = item->number != 0;
	return true;
}

/* The position of a word in "one|two|three"; -1 where it is none of them. */
static int position(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (int i = 0;; i++) {
		size_t one = strcspn(words, "|");
		if (one == len && memcmp(words, word, len) == 0)
			return i;
		if (!words[one])
			return -1;
		words += one + 1;
	}
}

static bool set_choice(struct loader *loader, const struct option *option,
		       const struct item *item, void *field)
{
	option_choice *choice = field;
	int found = item->kind == ITEM_TEXT ? position(option->max, item->text) : -1;

	if (found < 0) {
		settings_error(loader, item, "`%s` must be one of \"%s\", in quotes",
			       option->name, option->max);
		return false;
	}
	*choice = found;
	return true;
}

/* As canonical JSON, since that is what it will be compared with. */
static bool set_scalar(struct loader *loader, const struct option *option,
		       const struct item *item, void *field)
{
	option_scalar *scalar = field;
	struct span text = { NULL, 0 };

	if (item->kind == ITEM_TEXT)
		text = json_quoted(loader->arena, span_of(item->text));
	else if (item->kind == ITEM_NUMBER)
		text = json_canonical(loader->arena, arena_format(loader->arena, "%lld",
								  (long long)item->number));
	else if (item->kind == ITEM_FLAG)
		text = span_of(item->number ? "true" : "false");
	if (!text.at)
		return wrong(loader, option, item,
			     "a text in quotes (UTF-8), a whole number, true or false");
	*scalar = text.at;
	return true;
}

static const char *each_upstream(const void *of, size_t i)
{
	const struct settings *settings = of;

	return i < settings->n_upstreams ? settings->upstreams[i].name : NULL;
}

static const char *each_account(const void *of, size_t i)
{
	const struct settings *settings = of;

	return i < settings->n_accounts ? settings->accounts[i].name : NULL;
}

/* The position of the name; -1 where there is none, and that was said. */
static int reference(struct loader *loader, const struct option *option,
		     const struct item *item, const char *what,
		     const char *(*each)(const void *of, size_t i))
{
	const char *near = NULL;

	if (item->kind != ITEM_TEXT) {
		settings_error(loader, item, "`%s` must be the name of one of `%s`, in quotes",
			       option->name, what);
		return -1;
	}
	for (int i = 0; each(loader->settings, (size_t)i); i++)
		if (strcmp(each(loader->settings, (size_t)i), item->text) == 0)
			return i;
	near = settings_nearest(item->text, each, loader->settings);
	settings_error(loader, item, "`%s`: there is no `%s` in `%s`%s%s%s", option->name,
		       item->text, what, near ? "; did you mean `" : "", near ? near : "",
		       near ? "`?" : "");
	return -1;
}

static bool set_upstream(struct loader *loader, const struct option *option,
			 const struct item *item, void *field)
{
	option_upstream *upstream = field;
	int i = reference(loader, option, item, "upstreams", each_upstream);

	if (i >= 0)
		*upstream = &loader->settings->upstreams[i];
	return i >= 0;
}

static bool set_account(struct loader *loader, const struct option *option,
			const struct item *item, void *field)
{
	option_account *account = field;
	int i = reference(loader, option, item, "accounts", each_account);

	if (i >= 0)
		*account = &loader->settings->accounts[i];
	return i >= 0;
}

static bool same_word(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_text(const void *a, const void *b)
{
	const option_text *one = a, *other = b;

	return same_word(*one, *other);
}

static bool same_texts(const void *a, const void *b)
{
	const option_texts *one = a, *other = b;

	if (one->n != other->n)
		return false;
	for (size_t i = 0; i < one->n; i++)
		if (!same_word(one->at[i], other->at[i]))
			return false;
	return true;
}

static bool same_cidrs(const void *a, const void *b)
{
	const option_cidrs *one = a, *other = b;

	if (one->n != other->n || one->unix_sockets != other->unix_sockets)
		return false;
	for (size_t i = 0; i < one->n; i++)
		if (one->at[i].bits != other->at[i].bits ||
		    memcmp(one->at[i].address, other->at[i].address, 16) != 0)
			return false;
	return true;
}

static bool same_number(const void *a, const void *b)
{
	const int64_t *one = a, *other = b;

	return *one == *other;
}

static bool same_flag(const void *a, const void *b)
{
	const option_flag *one = a, *other = b;

	return *one == *other;
}

static bool same_choice(const void *a, const void *b)
{
	const option_choice *one = a, *other = b;

	return *one == *other;
}

static bool same_pointer(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(void *)) == 0;
}

static const struct {
	bool (*set)(struct loader *loader, const struct option *option, const struct item *item,
		    void *field);
	bool (*same)(const void *a, const void *b);
} types[] = {
	[OPTION_TEXT] = { set_text, same_text },
	[OPTION_FILE] = { set_file, same_text },
	[OPTION_TEXTS] = { set_texts, same_texts },
	[OPTION_CIDRS] = { set_cidrs, same_cidrs },
	[OPTION_COUNT] = { set_count, same_number },
	[OPTION_DURATION] = { set_duration, same_number },
	[OPTION_SIZE] = { set_size, same_number },
	[OPTION_FLAG] = { set_flag, same_flag },
	[OPTION_CHOICE] = { set_choice, same_choice },
	[OPTION_SCALAR] = { set_scalar, same_text },
	[OPTION_UPSTREAM] = { set_upstream, same_pointer },
	[OPTION_ACCOUNT] = { set_account, same_pointer },
};

bool option_set(struct loader *loader, const struct option *option, const struct item *item,
		void *field)
{
	return types[option->type].set(loader, option, item, field);
}

bool option_same(const struct option *option, const void *a, const void *b)
{
	return types[option->type].same(a, b);
}

bool option_required(const struct option *option)
{
	return option->min && strcmp(option->min, "required") == 0;
}

/* ["a", "b"] of options.def. */
static void fallback_list(struct loader *loader, struct item *item)
{
	struct item *at = arena_zero(loader->arena, strlen(item->text) * sizeof(*at));
	const char *from = strchr(item->text, '"');

	for (; from; from = strchr(from, '"')) {
		size_t len = strcspn(from + 1, "\"");
		struct span text = arena_copy(loader->arena, (struct span){ from + 1, len });

		at[item->n++] = (struct item){ .kind = ITEM_TEXT, .text = text.at };
		from += len + 2;
	}
	item->kind = ITEM_LIST;
	item->at = at;
}

static void fallback_item(struct loader *loader, const struct option *option, struct item *item)
{
	*item = (struct item){ .kind = ITEM_TEXT,
			       .text = option->fallback,
			       .file = "options.def" };
	if (option->type == OPTION_TEXTS || option->type == OPTION_CIDRS) {
		fallback_list(loader, item);
	} else if (option->type == OPTION_COUNT) {
		item->kind = ITEM_NUMBER;
		item->number = strtoll(option->fallback, NULL, 10);
	} else if (option->type == OPTION_FLAG) {
		item->kind = ITEM_FLAG;
		item->number = strcmp(option->fallback, "true") == 0;
	}
}

/* What is absent and has no default: -1 for a duration, zero and NULL for everything else. */
void option_fallback(struct loader *loader, const struct option *option, void *field)
{
	struct item item;
	bool ok = true;

	if (option->fallback) {
		fallback_item(loader, option, &item);
		ok = option_set(loader, option, &item, field);
	} else if (option->type == OPTION_DURATION) {
		option_duration *duration = field;
		*duration = -1;
	}
	assert(ok); /* options.def */
	(void)ok;
}
