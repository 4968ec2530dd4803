/* The same promises over TLS: who is believed, what was sent, what an end means. */
#include "upstream_rig.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

static struct server_rig server;
static struct client_rig client;
static struct call_rig rig;
static char ca_file[64], other_ca_file[64];

struct identity {
	EVP_PKEY *key;
	X509 *certificate;
};

static void extend(X509 *certificate, int nid, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	ck_assert_ptr_nonnull(extension);
	X509_add_ext(certificate, extension, -1);
	X509_EXTENSION_free(extension);
}

/* Signed by `ca`, or by itself where that is NULL. */
static struct identity identity(const char *name, const char *names, const struct identity *ca)
{
	struct identity id = { EVP_EC_gen("P-256"), X509_new() };
	X509_NAME *subject = X509_get_subject_name(id.certificate);

	X509_set_version(id.certificate, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(id.certificate), ca ? 2 : 1);
	X509_gmtime_adj(X509_getm_notBefore(id.certificate), -3600);
	X509_gmtime_adj(X509_getm_notAfter(id.certificate), 3600);
	X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
				   -1, 0);
	X509_set_issuer_name(id.certificate,
			     ca ? X509_get_subject_name(ca->certificate) : subject);
	X509_set_pubkey(id.certificate, id.key);
	extend(id.certificate, NID_basic_constraints, ca ? "CA:FALSE" : "critical,CA:TRUE");
	if (names)
		extend(id.certificate, NID_subject_alt_name, names);
	ck_assert_int_gt(X509_sign(id.certificate, ca ? ca->key : id.key, EVP_sha256()), 0);
	return id;
}

static void identity_free(struct identity *id)
{
	EVP_PKEY_free(id->key);
	X509_free(id->certificate);
}

static void write_ca(const struct identity *ca, char path[64])
{
	FILE *file = NULL;

	(void)snprintf(path, 64, "/tmp/onceward-ca-XXXXXX");
	file = fdopen(mkstemp(path), "w");
	PEM_write_X509(file, ca->certificate);
	(void)fclose(file);
}

static void begin_as(bool (*script)(struct peer *peer), const char *names)
{
	struct identity ca = identity("a CA", NULL, NULL);
	struct identity other = identity("another CA", NULL, NULL);
	struct identity self = identity("a server", names, &ca);

	write_ca(&ca, ca_file);
	write_ca(&other, other_ca_file);
	server.tls = SSL_CTX_new(TLS_server_method());
	SSL_CTX_use_certificate(server.tls, self.certificate);
	SSL_CTX_use_PrivateKey(server.tls, self.key);
	identity_free(&ca);
	identity_free(&other);
	identity_free(&self);
	server.script = script;
	server_start(&server);
	client_start(&client);
	client.upstream.tls.ca_file = ca_file;
}

static void begin(bool (*script)(struct peer *peer))
{
	begin_as(script, "IP:127.0.0.1,DNS:localhost");
	client_to(&client, &server);
}

static void finish(void)
{
	client_stop(&client);
	server_stop(&server);
	SSL_CTX_free(server.tls);
	unlink(ca_file);
	unlink(other_ca_file);
}

static bool say_length(struct peer *peer)
{
	char text[128];

	(void)snprintf(text, sizeof(text),
		       "HTTP/1.1 200 OK\r\nX-Body: %zu\r\nContent-Length: 2\r\n\r\nok",
		       peer->body);
	return say_text(peer, text);
}

START_TEST(calls_share_a_verified_connection)
{
	begin(say_length);
	if (_i)
		SSL_CTX_set_max_proto_version(server.tls, TLS1_2_VERSION);
	for (int i = 0; i < 20; i++) {
		call(&client, &rig, "POST", SPAN("hello"));
		assert_end(rig, UPSTREAM_ANSWERED);
		ck_assert(span_equal(rig.call.answer.fields.at[0].value, SPAN("5")));
		turn_for(&client, i == 3 ? 30 : 0); /* tickets come in */
	}
	ck_assert_uint_eq(server.connections, 1);
	ck_assert_uint_eq(server.arrivals, 20);
	finish();
}
END_TEST

static bool big_answer(struct peer *peer)
{
	char *at = malloc(4 << 20);

	ck_assert_uint_eq(peer->body, 5 << 20);
	memset(at, 'y', 4 << 20);
	say_text(peer, "HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n");
	say(peer, at, 4 << 20);
	free(at);
	return true;
}

START_TEST(large_bodies_pass_both_ways)
{
	struct span body = { NULL, (size_t)5 << 20 };

	begin(big_answer);
	body.at = arena_zero(client.arena, body.len);
	for (int i = 0; i < 2; i++) {
		call(&client, &rig, "POST", body);
		assert_end(rig, UPSTREAM_ANSWERED);
		ck_assert_uint_eq(rig.call.answer.body.len, 4 << 20);
	}
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

static bool answer_and_close_late(struct peer *peer)
{
	say_length(peer);
	nap(50);
	return false;
}

/* libcurl closes what it finds dead in its cache, once a second, when it begins a transfer. */
START_TEST(a_new_connection_does_not_close_an_idle_one_behind_our_back)
{
	begin(answer_and_close_late);
	client_server_at(&client, "localhost", server.port, true);
	upstreams_follow(client.upstreams, &client.settings, 1);
	for (int i = 0; i < 3; i++) {
		call(&client, &rig, "POST", SPAN("x"));
		assert_end(rig, UPSTREAM_ANSWERED);
		nap(i == 0 ? 1200 : 0); /* the loop does not see the first one's end */
	}
	ck_assert_uint_eq(server.arrivals, 3);
	finish();
}
END_TEST

START_TEST(who_is_not_verified_gets_nothing)
{
	static const char *const names[] = { "IP:127.0.0.1", "DNS:elsewhere.example",
					     "IP:127.0.0.1", "IP:127.0.0.1" };

	begin_as(say_length, names[_i]);
	if (_i == 0)
		client.upstream.tls.ca_file = other_ca_file;
	if (_i == 2)
		client.upstream.tls.ca_file = NULL; /* the system's */
	if (_i == 3)
		client.upstream.tls.ca_file = "/nonexistent.pem";
	client_to(&client, &server);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_NOT_SENT);
	ck_assert_uint_eq(server.arrivals, 0);
	finish();
}
END_TEST

/* What a server may say instead of a handshake. */
static bool no_handshake(struct peer *peer)
{
	if (peer->server->mode == 0)
		return false;
	if (peer->server->mode == 1)
		say_text(peer, "HTTP/1.1 400 This is no TLS\r\n\r\n");
	nap(500);
	return false;
}

START_TEST(a_handshake_that_fails_sent_nothing)
{
	server.mode = _i;
	server.hello = true;
	server.script = no_handshake;
	server_start(&server);
	client_start(&client);
	client.upstream.connect_timeout = 200;
	client_server_at(&client, "127.0.0.1", server.port, true);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_NOT_SENT);
	ck_assert_int_lt(rig.turned_us, 450000);
	for (int i = 0; i < 200 && server.connections == 0; i++)
		nap(10); /* a busy machine may accept after the call has given up */
	ck_assert_uint_eq(server.connections, 1);
	client_stop(&client);
	server_stop(&server);
}
END_TEST

static bool die_at_second(struct peer *peer)
{
	static const char *const says[] = { "", "", "HTTP/1.1 2",
					    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nha" };

	if (peer->nth == 1)
		return say_length(peer);
	say_text(peer, says[peer->server->mode]);
	return peer->server->mode == 1 ? reset(peer) : false;
}

START_TEST(a_kept_alive_connection_that_dies_got_the_only_request)
{
	static const struct {
		const char *method;
		struct span body;
	} requests[] = { { "POST", SPAN("hello") }, { "POST", { "", 0 } } };

	server.mode = _i;
	begin(die_at_second);
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		server.arrivals = 0;
		call(&client, &rig, "GET", (struct span){ 0 });
		assert_end(rig, UPSTREAM_ANSWERED);
		call(&client, &rig, requests[i].method, requests[i].body);
		assert_end(rig, UPSTREAM_CUT);
		turn_for(&client, 20);
		ck_assert_uint_eq(server.arrivals, 2);
	}
	finish();
}
END_TEST

static bool answer_and_linger(struct peer *peer)
{
	say_length(peer);
	if (peer->nth == 1)
		nap(100);
	return true;
}

/* Over a plain connection this would be proof. */
START_TEST(a_write_that_failed_may_have_sent)
{
	begin(answer_and_linger);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_ANSWERED);
	shutdown(descriptor_to(&server), SHUT_WR);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_CUT);
	ck_assert(!rig.call.retried);
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

static bool answer_then_close(struct peer *peer)
{
	say_length(peer);
	if (peer->server->mode)
		SSL_shutdown(peer->ssl);
	return false;
}

START_TEST(an_idle_connection_that_ended_costs_nothing)
{
	server.mode = _i & 1;
	begin(answer_then_close);
	for (int i = 0; i < 3; i++) {
		call(&client, &rig, "POST", SPAN("x"));
		assert_end(rig, UPSTREAM_ANSWERED);
		if (_i & 2)
			turn_for(&client, 40);
		else
			nap(40);
	}
	ck_assert_uint_eq(server.arrivals, 3);
	finish();
}
END_TEST

static bool until_the_end(struct peer *peer)
{
	say_text(peer, "HTTP/1.1 200 OK\r\n\r\nall there is");
	if (peer->server->mode)
		SSL_shutdown(peer->ssl);
	return false;
}

START_TEST(an_end_that_tls_does_not_vouch_for_is_a_cut)
{
	server.mode = _i;
	begin(until_the_end);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, _i ? UPSTREAM_ANSWERED : UPSTREAM_CUT);
	ck_assert_int_eq(rig.call.close_delimited, _i);
	finish();
}
END_TEST

START_TEST(a_server_that_does_not_read_is_timed_out)
{
	struct span body = { NULL, (size_t)32 << 20 };

	begin(NULL);
	client.upstream.idle_timeout = 200;
	body.at = arena_zero(client.arena, body.len);
	call(&client, &rig, "POST", body);
	assert_end(rig, UPSTREAM_TIMED_OUT);
	server.over = true;
	finish();
}
END_TEST

static bool answer_early(struct peer *peer)
{
	say_text(peer, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
	nap(200);
	return false;
}

START_TEST(an_answer_before_the_whole_body_was_written_is_an_answer)
{
	struct span body = { NULL, (size_t)32 << 20 };

	server.head_only = true;
	begin(answer_early);
	body.at = arena_zero(client.arena, body.len);
	for (unsigned i = 1; i <= 2; i++) {
		call(&client, &rig, "POST", body);
		assert_end(rig, UPSTREAM_ANSWERED);
		ck_assert_uint_eq(rig.call.answer.status, 413);
		ck_assert_uint_eq(server.connections, i);
	}
	finish();
}
END_TEST

/* The key update asks for an answer, which the client writes while it reads. */
static bool update_keys(struct peer *peer)
{
	SSL_key_update(peer->ssl, SSL_KEY_UPDATE_REQUESTED);
	return say_length(peer);
}

START_TEST(keys_may_change_between_answers)
{
	begin(update_keys);
	for (int i = 0; i < 5; i++) {
		call(&client, &rig, "POST", SPAN("hello"));
		assert_end(rig, UPSTREAM_ANSWERED);
	}
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

START_TEST(a_call_that_comes_too_late_is_not_begun)
{
	begin(say_length);
	call(&client, &rig, "POST", SPAN("x"));
	call_begin(&client, &rig, "POST", SPAN("x"));
	rig.call.start_by_ms = loop_clock_us() / 1000 - 1;
	call_send(&client, &rig);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_TOO_LATE);
	ck_assert_uint_eq(server.arrivals, 1);
	finish();
}
END_TEST

/* What OpenSSL holds already no socket reports: a call goes on with it by itself. */
static struct buf streamed;

static bool heads(struct upstream_call *call)
{
	return call->length == 4 << 20;
}

static void comes(struct upstream_call *call, struct span piece)
{
	buf_span(&streamed, piece);
	upstream_pause(call);
}

static bool four_mib(struct peer *peer)
{
	char *at = calloc(1, 4 << 20);

	say_text(peer, "HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n");
	say(peer, at, 4 << 20);
	free(at);
	return true;
}

START_TEST(a_paused_call_goes_on)
{
	size_t at = 0;

	begin(four_mib);
	buf_init(&streamed, 8 << 20);
	call_begin(&client, &rig, "POST", SPAN("x"));
	rig.call.answer_max = 1000;
	rig.call.head = heads;
	rig.call.data = comes;
	call_send(&client, &rig);
	while (!rig.done) {
		loop_wait(client.loop, 20);
		upstreams_run(client.upstreams);
		ck_assert_uint_le(streamed.len, at + (64 << 10));
		at = streamed.len;
		upstream_resume(&rig.call);
	}
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert_uint_eq(streamed.len, 4 << 20);
	buf_fini(&streamed);
	finish();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("tls");

	tcase_add_loop_test(tcase, calls_share_a_verified_connection, 0, 2);
	tcase_add_test(tcase, large_bodies_pass_both_ways);
	tcase_add_test(tcase, a_new_connection_does_not_close_an_idle_one_behind_our_back);
	tcase_add_loop_test(tcase, who_is_not_verified_gets_nothing, 0, 4);
	tcase_add_loop_test(tcase, a_handshake_that_fails_sent_nothing, 0, 3);
	tcase_add_loop_test(tcase, a_kept_alive_connection_that_dies_got_the_only_request, 0,
			    4);
	tcase_add_test(tcase, a_write_that_failed_may_have_sent);
	tcase_add_loop_test(tcase, an_idle_connection_that_ended_costs_nothing, 0, 4);
	tcase_add_loop_test(tcase, an_end_that_tls_does_not_vouch_for_is_a_cut, 0, 2);
	tcase_add_test(tcase, a_server_that_does_not_read_is_timed_out);
	tcase_add_test(tcase, an_answer_before_the_whole_body_was_written_is_an_answer);
	tcase_add_test(tcase, keys_may_change_between_answers);
	tcase_add_test(tcase, a_call_that_comes_too_late_is_not_begun);
	tcase_add_test(tcase, a_paused_call_goes_on);
	return run_suite("upstream_tls", tcase);
}
