/*
 * How fast a JSON body becomes a digest, in MB of body a second, for a small order and the files
 * of a corpus: SHA-256 of the bytes as they are, the canonical form into SHA-256, the whole
 * digest_request (canonical and raw digest), and what a general library needs to parse and dump
 * with sorted members. Each figure is the best of several short runs; the last columns are the
 * ratios that are to hold: at least 0.35 of SHA-256, at least 4 times the library.
 */
#include "digest.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RUNS        7
#define RUN_SECONDS 0.05

struct to_hash {
	struct canonical_sink sink;
	struct hash *hash;
};

static struct hash *hash;
static unsigned char digest[32];

static void put(struct canonical_sink *sink, const void *bytes, size_t len)
{
	hash_add(container_of(sink, struct to_hash, sink)->hash, bytes, len);
}

static void plain(struct span body)
{
	hash_reset(hash);
	hash_add(hash, body.at, body.len);
	hash_end(hash, digest);
}

static void canonical(struct span body)
{
	struct arena *arena = arena_new();
	struct to_hash to = { { put }, hash };
	const struct canonical_task task = { .arena = arena, .body = body };
	struct canonical_error error;

	hash_reset(hash);
	if (!canonical_json(&task, &to.sink, &error)) {
		fprintf(stderr, "byte %zu: expected %s\n", error.offset, error.expected);
		abort();
	}
	hash_end(hash, digest);
	arena_free(arena);
}

static void whole(struct span body)
{
	const struct digest_rules rules = { .version = 1 };
	struct http_field type = { SPAN("Content-Type"), SPAN("application/json") };
	struct http_request request = { .arena = arena_new(),
					.method = SPAN("POST"),
					.target = SPAN("/v1/orders"),
					.path = SPAN("/v1/orders"),
					.fields = { &type, 1 },
					.body = body };
	struct canonical_error error;
	struct digest out;

	if (!digest_request(&rules, &request, NULL, &out, &error))
		abort();
	arena_free(request.arena);
}

static void library(struct span body)
{
	json_t *value = json_loadb(body.at, body.len, JSON_DECODE_ANY, NULL);
	char *text = value ? json_dumps(value, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY)
			   : NULL;

	if (!text)
		abort();
	free(text);
	json_decref(value);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* MB a second: how often within a run, so that the clock is asked seldom. */
static double speed(void (*step)(struct span body), struct span body)
{
	size_t times = 1 + 100000 / (body.len + 1);
	double best = 0;

	for (int run = 0; run < RUNS; run++) {
		double start = now(), spent = 0, bytes = 0;

		while (spent < RUN_SECONDS) {
			for (size_t i = 0; i < times; i++)
				step(body);
			bytes += (double)(body.len * times);
			spent = now() - start;
		}
		if (bytes / spent > best)
			best = bytes / spent;
	}
	return best / 1e6;
}

static void bench(const char *name, struct span body)
{
	double sha = speed(plain, body), ours = speed(canonical, body);
	double all = speed(whole, body), theirs = speed(library, body);

	printf("%-28s %8zu %8.0f %9.0f %7.0f %8.0f %9.2f %9.1f\n", name, body.len, sha, ours,
	       all, theirs, ours / sha, ours / theirs);
}

static struct span file(struct arena *arena, const char *path)
{
	FILE *in = fopen(path, "rb");
	char *at = NULL;
	long len = 0;

	if (!in)
		return (struct span){ 0 };
	fseek(in, 0, SEEK_END);
	len = ftell(in);
	rewind(in);
	at = arena_alloc(arena, (size_t)len + 1);
	if (fread(at, 1, (size_t)len, in) != (size_t)len)
		abort();
	fclose(in);
	return (struct span){ at, (size_t)len };
}

static const char order[] =
	"{\"customer_id\":\"cus_9f8e7d6c5b4a\",\"currency\":\"EUR\",\"items\":[{\"sku\":"
	"\"A-1001\",\"quantity\":2,\"unit_price\":\"19.90\"},{\"sku\":\"B-2002\",\"quantity\":"
	"1,"
	"\"unit_price\":\"5.00\"}],\"shipping\":{\"name\":\"Erika Mustermann\",\"street\":"
	"\"Heidestra\xc3\x9f"
	"e 17\",\"postcode\":\"51147\",\"city\":\"K\xc3\xb6ln\",\"country\":\"DE\"},"
	"\"total\":44.8,\"note\":\"leave at the door\"}";

int main(void)
{
	const char *corpora = getenv("ONCEWARD_CORPORA");
	const char *const names[] = { "twitter.json", "canada.json" };
	struct arena *arena = arena_new();

	if (!corpora)
		corpora = "../shared/corpora";
	hash = hash_new();
	printf("%-28s %8s %8s %9s %7s %8s %9s %9s\n", "MB/s", "bytes", "sha256", "canonical",
	       "request", "jansson", "/sha256", "/jansson");
	bench("an order", SPAN(order));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct span path = arena_format(arena, "%s/nativejson-benchmark/data/%s",
						corpora, names[i]);
		struct span body = file(arena, path.at);

		if (body.at)
			bench(names[i], body);
		else
			printf("%-28s is not there (%s)\n", names[i], path.at);
	}
	hash_free(hash);
	arena_free(arena);
	return 0;
}
