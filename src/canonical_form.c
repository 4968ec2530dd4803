/*
 * The canonical form of application/x-www-form-urlencoded: read by the rules of the WHATWG URL
 * standard (`+` is a space, what is no escape stands for itself, an empty piece is nothing, `a` is
 * `a=`), sorted by name with the order of equal names kept, and written as that standard writes
 * it. But bytes that are not UTF-8 stay what they are: two of them are not the same for that.
 *
 * A form is never malformed, so nothing is ever refused. The decoded text needs as much memory as
 * the body, and each field, which has two bytes or more of it, twelve.
 */
#include "canonical.h"

#include "canonical_rules.h"
#include "http.h"

#define GATHERED 4096U

struct field {
	uint32_t at, name_len, value_len; /* in the text: a name, and its value behind it */
};

struct form {
	const struct canonical_rules *rules;
	char *text;
	size_t len;
	struct field *field;
	size_t n;
	bool *seen; /* by a rule's number */
	bool kept;  /* there is a field that `only` keeps */
	bool whole; /* there is none, and all count */
};

/* The piece up to the next `&`, taken off the front. */
static struct span next_piece(struct span *body)
{
	const char *end = memchr(body->at, '&', body->len);
	struct span piece = { body->at, end ? (size_t)(end - body->at) : body->len };
	size_t used = piece.len + (end ? 1 : 0);

	body->at += used;
	body->len -= used;
	return piece;
}

static size_t count_pieces(struct span body)
{
	size_t n = 0;

	while (body.len)
		n += next_piece(&body).len > 0;
	return n;
}

/* One byte of a piece, decoded; returns how many it was made of. */
static size_t decode_one(struct span piece, size_t i, char *out)
{
	const char *at = piece.at + i;

	*out = *at;
	if (*at == '+')
		*out = ' ';
	if (*at != '%' || piece.len - i < 3 || !http_is(at[1], HTTP_HEX) ||
	    !http_is(at[2], HTTP_HEX))
		return 1;
	*out = (char)(http_hex(at[1]) << 4 | http_hex(at[2]));
	return 3;
}

/* Appends the decoded piece to the text. */
static uint32_t decode(struct form *form, struct span piece)
{
	size_t start = form->len;

	for (size_t i = 0; i < piece.len;)
		i += decode_one(piece, i, form->text + form->len++);
	return (uint32_t)(form->len - start);
}

static struct span name_of(const struct form *form, const struct field *field)
{
	return (struct span){ form->text + field->at, field->name_len };
}

static void add_piece(struct form *form, struct span piece)
{
	const char *equals = memchr(piece.at, '=', piece.len);
	size_t name_len = equals ? (size_t)(equals - piece.at) : piece.len;
	size_t value_at = equals ? name_len + 1 : name_len;
	struct field *field = &form->field[form->n];
	const struct rule *place = NULL;

	field->at = (uint32_t)form->len;
	field->name_len = decode(form, (struct span){ piece.at, name_len });
	field->value_len =
		decode(form, (struct span){ piece.at + value_at, piece.len - value_at });
	place = rule_field(form->rules, name_of(form, field));
	if (place)
		form->seen[place->number] = true;
	form->kept |= rule_field_kept(form->rules, name_of(form, field));
	if (rule_field_counts(form->rules, form->whole, name_of(form, field)))
		form->n++;
	else
		form->len = field->at;
}

static void add_pieces(struct form *form, struct span body)
{
	while (body.len) {
		struct span piece = next_piece(&body);

		if (piece.len)
			add_piece(form, piece);
	}
}

static void add_text(struct form *form, struct span text)
{
	if (text.len)
		memcpy(form->text + form->len, text.at, text.len);
	form->len += text.len;
}

/* What is absent and has a default that a form can say. */
static void add_defaults(struct form *form)
{
	const struct rule *place = form->rules ? form->rules->root.first : NULL;

	for (; place; place = place->next) {
		if (!place->text.at || form->seen[place->number])
			continue;
		form->field[form->n++] =
			(struct field){ (uint32_t)form->len, (uint32_t)place->plain.len,
					(uint32_t)place->text.len };
		add_text(form, place->plain);
		add_text(form, place->text);
	}
}

/* By the bytes of the name; of equal names the first remains first. Where they begin at one place
 * all but the latest are empty. */
static bool before(const struct form *form, const struct field *a, const struct field *b)
{
	size_t n = a->name_len < b->name_len ? a->name_len : b->name_len;
	int order = memcmp(form->text + a->at, form->text + b->at, n);

	if (order)
		return order < 0;
	if (a->name_len != b->name_len)
		return a->name_len < b->name_len;
	return a->at != b->at ? a->at < b->at : a->value_len < b->value_len;
}

static void swap(struct field *a, struct field *b)
{
	struct field held = *a;

	*a = *b;
	*b = held;
}

/* Field `i` sinks until none below it is greater. */
static void sink_down(struct form *form, size_t i, size_t n)
{
	struct field *f = form->field;

	for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
		if (child + 1 < n && before(form, &f[child], &f[child + 1]))
			child++;
		if (!before(form, &f[i], &f[child]))
			return;
		swap(&f[i], &f[child]);
		i = child;
	}
}

/* A heap: no memory, and n log n steps whatever is sent. */
static void sort(struct form *form)
{
	size_t i = 1;

	while (i < form->n && !before(form, &form->field[i], &form->field[i - 1]))
		i++;
	if (i >= form->n)
		return;
	for (i = form->n / 2; i-- > 0;)
		sink_down(form, i, form->n);
	for (i = form->n - 1; i > 0; i--) {
		swap(&form->field[0], &form->field[i]);
		sink_down(form, 0, i);
	}
}

struct gathering {
	struct canonical_sink *sink;
	size_t n;
	char bytes[GATHERED];
};

static void put_byte(struct gathering *g, char byte)
{
	if (g->n == sizeof(g->bytes)) {
		g->sink->put(g->sink, g->bytes, g->n);
		g->n = 0;
	}
	g->bytes[g->n++] = byte;
}

static void put_encoded(struct gathering *g, const char *at, size_t len)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)at[i];

		if (c == ' ') {
			put_byte(g, '+');
		} else if (c == '*' || (http_is(at[i], HTTP_UNRESERVED) && c != '~')) {
			put_byte(g, at[i]);
		} else {
			put_byte(g, '%');
			put_byte(g, digits[c >> 4]);
			put_byte(g, digits[c & 15]);
		}
	}
}

static void put_fields(const struct form *form, struct canonical_sink *sink)
{
	struct gathering g;

	g.sink = sink;
	g.n = 0;
	for (size_t i = 0; i < form->n; i++) {
		const struct field *field = &form->field[i];
		const char *name = form->text + field->at;

		if (i)
			put_byte(&g, '&');
		put_encoded(&g, name, field->name_len);
		put_byte(&g, '=');
		put_encoded(&g, name + field->name_len, field->value_len);
	}
	if (g.n)
		sink->put(sink, g.bytes, g.n);
}

bool canonical_form(const struct canonical_task *task, struct canonical_sink *sink,
		    struct canonical_error *error)
{
	const struct canonical_rules *rules = task->rules;
	struct span body = task->body;
	struct form form = { .rules = rules };
	size_t n = count_pieces(body), n_rules = rules ? rules->n : 0;

	if (body.len > INT32_MAX) {
		*error = (struct canonical_error){ .expected = "a body of less than 2 GiB" };
		return false;
	}
	form.text = arena_alloc(task->arena, body.len + (rules ? rules->fallback_bytes : 0));
	form.field = arena_alloc(task->arena, (n + n_rules) * sizeof(*form.field));
	form.seen = arena_zero(task->arena, n_rules);
	add_pieces(&form, body);
	if (canonical_only_if_there(task) && !form.kept) {
		form.whole = true;
		form.n = form.len = 0;
		add_pieces(&form, body);
	}
	add_defaults(&form);
	sort(&form);
	put_fields(&form, sink);
	return true;
}
