/*
 * Forms against the corpora of others: the WHATWG's own cases, and those of two libraries that
 * read multipart bodies. A well-formed body has the same canonical form under another boundary.
 */
#include "canonical_rig.h"
#include "corpora.h"

#include <dirent.h>

#define BYTES_MAX ((size_t)1 << 22)

static bool canonical_form_of(struct span body, struct to_buf *to)
{
	struct canonical_error error;

	return canonical_by("form", (struct canonical_task){ .body = body }, to, &error);
}

/* As the WHATWG decodes it: what is no UTF-8 becomes U+FFFD, which only a case that has some
 * shows. */
static void put_percent(struct buf *out, struct span text)
{
	for (size_t i = 0; i < text.len; i++)
		buf_format(out, "%%%02x", (unsigned char)text.at[i]);
}

static void check_wpt(const json_t *one)
{
	struct span input = span_of(json_string_value(json_object_get(one, "input")));
	const json_t *output = json_object_get(one, "output"), *pair = NULL;
	struct to_buf to, again;
	struct buf said;
	size_t at = 0;

	buf_init(&said, BYTES_MAX);
	json_array_foreach(output, at, pair)
	{
		if (at)
			buf_byte(&said, '&');
		put_percent(&said, span_of(json_string_value(json_array_get(pair, 0))));
		buf_byte(&said, '=');
		put_percent(&said, span_of(json_string_value(json_array_get(pair, 1))));
	}
	ck_assert(canonical_form_of(input, &to) && canonical_form_of(buf_view(&said), &again));
	ck_assert_msg(span_equal(buf_view(&to.buf), buf_view(&again.buf)) ||
			      memmem(again.buf.at, again.buf.len, "%EF%BF%BD", 9),
		      "%s: %.*s", input.at, (int)to.buf.len, to.buf.at);
	buf_fini(&said);
	buf_fini(&to.buf);
	buf_fini(&again.buf);
}

START_TEST(forms_are_read_by_the_rules_of_the_whatwg)
{
	json_t *cases = corpus("wpt-urlencoded/urlencoded-parser-data.json"), *one = NULL;
	size_t at = 0;

	json_array_foreach(cases, at, one) if (json_is_object(one)) check_wpt(one);
	ck_assert(!cases || at > 30);
	json_decref(cases);
}
END_TEST

START_TEST(forms_of_another_library_are_forms)
{
	json_t *cases = corpus("busboy-forms/urlencoded.json"), *one = NULL;
	struct arena *arena = arena_new();
	size_t at = 0;

	json_array_foreach(cases, at, one)
	{
		struct to_buf to, again;

		ck_assert(canonical_form_of(
			corpus_bytes(arena, json_object_get(one, "body_base64")), &to));
		ck_assert(canonical_form_of(buf_view(&to.buf), &again));
		ck_assert(span_equal(buf_view(&to.buf), buf_view(&again.buf)));
		buf_fini(&to.buf);
		buf_fini(&again.buf);
	}
	arena_free(arena);
	json_decref(cases);
}
END_TEST

static bool parts(struct span body, const char *boundary, struct to_buf *to,
		  struct canonical_error *error)
{
	char type[512];

	snprintf(type, sizeof(type), "multipart/form-data; boundary=\"%s\"", boundary);
	return canonical_by(
		"multipart",
		(struct canonical_task){ .body = body, .content_type = span_of(type) }, to,
		error);
}

/* The same body with another boundary. */
static void replace(struct buf *out, struct span body, const char *boundary, const char *other)
{
	size_t len = strlen(boundary);

	buf_init(out, BYTES_MAX);
	while (body.len) {
		const char *found = memmem(body.at, body.len, boundary, len);
		size_t before = found ? (size_t)(found - body.at) : body.len;

		buf_append(out, body.at, before);
		if (found)
			buf_text(out, other);
		before += found ? len : 0;
		body = (struct span){ body.at + before, body.len - before };
	}
}

static void check_parts(const char *what, struct span body, const char *boundary, bool good)
{
	struct canonical_error error;
	struct to_buf to, again;
	struct buf other;
	bool done = parts(body, boundary, &to, &error);

	ck_assert_msg(done == good, "%s: %s", what, done ? "taken" : error.expected);
	replace(&other, body, boundary, "0ther--boundary-4-it");
	ck_assert(parts(buf_view(&other), "0ther--boundary-4-it", &again, &error) == good);
	/* where the boundary's text stands in the content, too, that was changed with it */
	ck_assert_msg(span_equal(buf_view(&to.buf), buf_view(&again.buf)) ||
			      memmem(again.buf.at, again.buf.len, "0ther", 5),
		      "%s", what);
	buf_fini(&other);
	buf_fini(&to.buf);
	buf_fini(&again.buf);
}

static bool has_error(const json_t *expected)
{
	const json_t *one = NULL;
	size_t at = 0;

	json_array_foreach(expected, at, one) if (json_object_get(one, "error")) return true;
	return false;
}

START_TEST(parts_are_what_busboy_says)
{
	json_t *cases = corpus("busboy-forms/multipart.json"), *one = NULL;
	struct arena *arena = arena_new();
	size_t at = 0;

	json_array_foreach(cases, at, one)
		check_parts(json_string_value(json_object_get(one, "what")),
			    corpus_bytes(arena, json_object_get(one, "body_base64")),
			    json_string_value(json_object_get(one, "boundary")),
			    !has_error(json_object_get(one, "expected")));
	arena_free(arena);
	json_decref(cases);
}
END_TEST

static struct span file_of(struct arena *arena, const char *folder, const char *name)
{
	struct span path = arena_format(arena, "%s/%s", folder, name);
	FILE *in = fopen(path.at, "rb");
	char *at = arena_alloc(arena, 65536);
	size_t len = in ? fread(at, 1, 65535, in) : 0;

	ck_assert_msg(in, "%s", path.at);
	fclose(in);
	at[len] = 0;
	return (struct span){ at, len };
}

/* NAME.http is a body, and NAME.yaml says its boundary and whether there is an error in it. */
static void check_python(struct arena *arena, const char *folder, const char *name)
{
	size_t len = strlen(name) - strlen(".yaml");
	struct span about = file_of(arena, folder, name), body = { 0 };
	char *boundary = strstr(about.at, "boundary: ");

	if (strcmp(name, "single_field_blocks.yaml") == 0)
		return; /* its boundary is not the one that it names */
	body = file_of(arena, folder, arena_format(arena, "%.*s.http", (int)len, name).at);
	boundary += strlen("boundary: ");
	boundary[strcspn(boundary, "\r\n")] = 0;
	check_parts(name, body, boundary, !strstr(boundary + strlen(boundary) + 1, "error:"));
}

START_TEST(parts_are_what_python_multipart_says)
{
	const char *corpora = getenv("ONCEWARD_CORPORA");
	struct arena *arena = arena_new();
	struct span folder = arena_format(arena, "%s/python-multipart/tests/test_data/http",
					  corpora ? corpora : "../shared/corpora");
	DIR *dir = opendir(folder.at);
	size_t n = 0;

	if (!dir)
		fprintf(stderr, "skipped: no %s\n", folder.at);
	for (struct dirent *entry = NULL; dir && (entry = readdir(dir));) {
		size_t len = strlen(entry->d_name);

		if (len < 6 || strcmp(entry->d_name + len - 5, ".yaml") != 0)
			continue;
		check_python(arena, folder.at, entry->d_name);
		n++;
	}
	if (dir)
		closedir(dir);
	ck_assert(!dir || n > 20);
	arena_free(arena);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		forms_are_read_by_the_rules_of_the_whatwg,
		forms_of_another_library_are_forms,
		parts_are_what_busboy_says,
		parts_are_what_python_multipart_says,
	};

	return run("canonical corpora of forms", tests, ARRAY_LEN(tests));
}
