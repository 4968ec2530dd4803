/* What a record is, from its reservation to its replay or its end, against a real server. */
#include "ledger_rig.h"

static struct ledger *ledger;

static void set_up_one(void)
{
	set_up();
	ledger = ledger_open();
}

START_TEST(the_first_reserve_wins_and_its_row_stands)
{
	int64_t now = scratch_number("SELECT extract(epoch FROM now())::int8");
	struct attempt *a = won(ledger, "k1", "content");

	ck_assert_uint_eq(strlen(a->entry.request_id), LEDGER_REQUEST_ID_BYTES - 1);
	ck_assert_int_ge(a->entry.first_seen, now - 1);
	ck_assert_int_le(a->entry.first_seen, now + 10);
	ck_assert_int_le(a->entry.lease_until_ms, loop_clock_us() / 1000 + 60000);
	ck_assert_int_gt(a->entry.lease_until_ms, loop_clock_us() / 1000 + 50000);
	rows_are("key", "digest = sha256('\\x0000000000000007'::bytea || 'content')", 1);
	rows_are("key", "keep_until - expires_at = interval '29 days'", 1);
	rows_are("op",
		 "account = 'alice' AND operation = 'orders.create' AND key = 'k1' AND "
		 "lease_until - created_at = interval '60 s' AND "
		 "settings = 'of the settings\\000' AND "
		 "expires_on = ((created_at + interval '1 day') AT TIME ZONE 'UTC')::date",
		 1);
	rows_are("event", "true", 0);
	nothing_went_wrong();
}
END_TEST

/* What a stored answer may look like. */
static struct http_answer odd_answer(int which)
{
	static struct http_field fields[] = {
		{ SPAN("Content-Type"), SPAN("application/json") },
		{ SPAN("X-Empty"), SPAN("") },
		{ SPAN("X-Colons"), SPAN("a: b: c:") },
		{ SPAN("Link"), SPAN("</a>; rel=\"next\", </b>") },
		{ SPAN("Link"), SPAN("</c>") },
		{ SPAN("X-Bytes"), SPAN("\xff\x80 tab\tin it") },
		{ SPAN("x"), SPAN(":") },
	};
	static char large[1024 * 1024];
	struct http_answer answer = { .status = 200, .fields = { fields, ARRAY_LEN(fields) } };

	switch (which) {
	case 0:
		answer.body = SPAN("{\"id\":1}");
		break;
	case 1:
		answer.body = SPAN("");
		answer.status = 204;
		answer.fields.n = 0;
		break;
	case 2:
		answer.body = SPAN("\0NUL\0\r\n\r\n\\x41\\'\"\xff\xfe");
		break;
	default:
		random_bytes(large, sizeof(large));
		answer.body = (struct span){ large, sizeof(large) };
		answer.status = 599;
		break;
	}
	return answer;
}

static void same_answer(const struct attempt *a, const struct http_answer *stored)
{
	const struct http_answer *out = &a->entry.stored;

	found_is(a, LEDGER_COMPLETED);
	ck_assert_int_eq(a->entry.same, LEDGER_SAME);
	ck_assert(a->entry.retained);
	ck_assert_uint_eq(out->status, stored->status);
	ck_assert_ptr_nonnull(out->body.at);
	ck_assert(span_equal(out->body, stored->body));
	ck_assert_uint_eq(out->fields.n, stored->fields.n);
	for (size_t i = 0; i < stored->fields.n; i++) {
		ck_assert(span_equal(out->fields.at[i].name, stored->fields.at[i].name));
		ck_assert(span_equal(out->fields.at[i].value, stored->fields.at[i].value));
	}
}

START_TEST(the_same_content_is_replayed_byte_for_byte)
{
	struct http_answer answer = odd_answer(_i);
	struct ledger *other = ledger_open();
	struct attempt *a = won(ledger, "k1", "content");
	struct attempt *again = NULL;

	a->entry.result = answer;
	settled(a, LEDGER_COMPLETE);
	for (int i = 0; i < 4; i++) {
		again = reserved(i % 2 ? other : ledger, "k1", "content");
		same_answer(again, &answer);
		ck_assert_str_eq(again->entry.request_id, a->entry.request_id);
		ck_assert_int_eq(again->entry.first_seen, a->entry.first_seen);
		ck_assert_int_ge(again->entry.completed_at, a->entry.first_seen);
		ck_assert_int_ge(again->entry.age_ms, 0);
	}
	rows_are("key", "true", 1);
	rows_are("event", "kind = 2", 1);
	nothing_went_wrong();
}
END_TEST

START_TEST(large_answers_share_a_commit_up_to_a_limit)
{
	static char large[LEDGER_BATCH_BYTES + 1];
	struct attempt *all[7];
	char key[32];

	for (int i = 0; i < 7; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		all[i] = won(ledger, key, "content");
	}
	counted[METRIC_ledger_batch_rows] = 0;
	for (int i = 0; i < 7; i++) {
		result_set(all[i], (struct span){ large, i == 6 ? sizeof(large) : 1U << 20 });
		settle(all[i], LEDGER_COMPLETE);
	}
	for (int i = 0; i < 7; i++)
		settled_is(all[i], LEDGER_SETTLED);
	ck_assert_int_eq(counted[METRIC_ledger_batch_rows], 3); /* three, three and the last */
	replayed(reserved(ledger, "k6", "content"), (struct span){ large, sizeof(large) });
	nothing_went_wrong();
}
END_TEST

START_TEST(two_hundred_at_once_replay_the_same)
{
	struct attempt *all[200];

	completed(ledger, "k1", "content", "the body");
	for (int i = 0; i < 200; i++) {
		all[i] = attempt_new(ledger, "k1", "content");
		reserve(all[i]);
	}
	for (int i = 0; i < 200; i++) {
		answered(all[i]);
		replayed(all[i], SPAN("the body"));
	}
	nothing_went_wrong();
}
END_TEST

START_TEST(another_content_is_different_and_tells_the_state)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct attempt *b = found(ledger, "k1", "other", LEDGER_IN_FLIGHT);

	ck_assert_int_eq(b->entry.same, LEDGER_DIFFERENT);
	ck_assert_int_eq(b->entry.first_seen, a->entry.first_seen);
	ck_assert_str_eq(b->entry.request_id, a->entry.request_id);
	result_set(a, SPAN("the body"));
	settled(a, LEDGER_COMPLETE);
	b = found(ledger, "k1", "other", LEDGER_COMPLETED);
	ck_assert_int_eq(b->entry.same, LEDGER_DIFFERENT);
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));

	settled(won(ledger, "k2", "content"), LEDGER_MARK_UNKNOWN);
	b = found(ledger, "k2", "other", LEDGER_UNKNOWN);
	ck_assert_int_eq(b->entry.same, LEDGER_DIFFERENT);
	nothing_went_wrong();
}
END_TEST

/* The same, but compared by other rules. */
static struct attempt *by_other_rules(struct idempotency_settings *with, const char *canonical,
				      const char *raw)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	a->entry.idempotency = with;
	content_set(a, canonical, raw);
	reserve(a);
	answered(a);
	return a;
}

START_TEST(under_other_rules_the_raw_digest_decides)
{
	struct idempotency_settings with = orders;

	completed(ledger, "k1", "content", "the body");
	with.rules.id++;
	replayed(by_other_rules(&with, "otherwise", "content"), SPAN("the body"));
	ck_assert_int_eq(by_other_rules(&with, "content", "otherwise")->entry.same,
			 LEDGER_RULES_CHANGED);
	nothing_went_wrong();
}
END_TEST

START_TEST(an_account_and_an_operation_have_keys_of_their_own)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");
	struct attempt *b = attempt_new(ledger, "k1", "content");

	won(ledger, "k1", "content");
	a->entry.account = SPAN("bob");
	b->entry.idempotency = &payments;
	reserve(a);
	reserve(b);
	answered(b);
	found_is(a, LEDGER_WON);
	found_is(b, LEDGER_WON);
	ck_assert_str_ne(a->entry.request_id, b->entry.request_id);
}
END_TEST

START_TEST(what_is_under_way_is_in_flight)
{
	struct ledger *other = ledger_open();
	struct attempt *a = won(ledger, "k1", "content");
	struct attempt *b = found(other, "k1", "content", LEDGER_IN_FLIGHT);

	ck_assert_int_eq(b->entry.same, LEDGER_SAME);
	ck_assert_str_eq(b->entry.request_id, a->entry.request_id);
	ck_assert_int_lt(b->entry.age_ms, SOON);
}
END_TEST

START_TEST(a_lease_that_ran_out_is_unknown_without_any_sweep)
{
	struct attempt *a = NULL, *b = NULL;

	orders.lease = 1000;
	a = won(ledger, "k1", "content");
	ck_assert_int_le(a->entry.lease_until_ms, loop_clock_us() / 1000 + 1000);
	b = reserved(ledger, "k1", "content");
	if (loop_clock_us() / 1000 < a->entry.lease_until_ms) /* a busy machine may be late */
		found_is(b, LEDGER_IN_FLIGHT);
	turn_for(1010);
	found(ledger, "k1", "content", LEDGER_UNKNOWN);
	rows_are("attention", "true", 0);
	/* The answer that comes after it is the result all the same. */
	result_set(a, SPAN("late"));
	settled(a, LEDGER_COMPLETE);
	replayed(reserved(ledger, "k1", "content"), SPAN("late"));
}
END_TEST

START_TEST(what_ends_after_its_lease_leaves_the_list)
{
	struct attempt *a = NULL, *b = NULL;

	orders.lease = 1000;
	a = won(ledger, "k1", "content");
	b = won(ledger, "k2", "content");
	won(ledger, "k3", "content");
	turn_for(1010);
	scratch_do(
		"INSERT INTO onceward.attention (created_at, op_id, expires_on, state, slot, "
		"key_hash, account, operation, key, cause) SELECT created_at, op_id, "
		"expires_on, 1, 0, key_hash, account, operation, key, 'swept' "
		"FROM onceward.op");
	result_set(a, SPAN("late"));
	settled(a, LEDGER_COMPLETE);
	settled(b, LEDGER_RELEASE);
	rows_are("attention", "true", 1);
	rows_are("attention", "key = 'k3'", 1);
}
END_TEST

START_TEST(a_release_frees_the_key_also_for_other_content)
{
	struct attempt *a = won(ledger, "k1", "content"), *b = NULL;

	settled(a, LEDGER_RELEASE);
	rows_are("key", "true", 0);
	rows_are("event", "kind = 4 AND slot = 1 AND note = 'a test''s'", 1);
	b = won(ledger, "k1", "other");
	ck_assert_str_ne(a->entry.request_id, b->entry.request_id);
	settled(b, LEDGER_RELEASE);
	won(ledger, "k1", "content");
	rows_are("attention", "true", 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(unknown_is_held_and_listed)
{
	struct attempt *a = won(ledger, "k1", "content");

	settled(a, LEDGER_MARK_UNKNOWN);
	rows_are("event", "kind = 3 AND status IS NULL AND body IS NULL", 1);
	rows_are("attention",
		 "state = 3 AND slot = 1 AND account = 'alice' AND key = 'k1' AND "
		 "operation = 'orders.create' AND cause = 'a test''s' AND "
		 "expires_on = (SELECT expires_on FROM onceward.op) AND "
		 "abs(extract(epoch FROM created_at - (SELECT created_at FROM onceward.op))) < "
		 "1",
		 1);
	for (int i = 0; i < 3; i++)
		found(ledger, "k1", "content", LEDGER_UNKNOWN);
	nothing_went_wrong();
}
END_TEST

START_TEST(what_a_sweep_had_listed_becomes_unknown_in_its_place)
{
	struct attempt *a = won(ledger, "k1", "content");

	scratch_do(
		"INSERT INTO onceward.attention (created_at, op_id, expires_on, state, slot, "
		"key_hash, account, operation, key, cause) SELECT created_at, op_id, "
		"expires_on, 1, 0, key_hash, account, operation, key, 'swept' "
		"FROM onceward.op");
	settled(a, LEDGER_MARK_UNKNOWN);
	rows_are("attention", "state = 3 AND slot = 1 AND cause = 'a test''s'", 1);
}
END_TEST

START_TEST(an_expired_response_is_not_retained_but_its_status_is_known)
{
	struct attempt *a = NULL;
	int64_t began_ms = 0;

	orders.retention = 1000;
	began_ms = loop_clock_us() / 1000;
	completed(ledger, "k1", "content", "the body");
	a = reserved(ledger, "k1", "content");
	if (loop_clock_us() / 1000 < began_ms + 1000) /* a busy machine may be late */
		replayed(a, SPAN("the body"));
	turn_for(1010);
	a = found(ledger, "k1", "content", LEDGER_COMPLETED);
	ck_assert(!a->entry.retained);
	ck_assert_uint_eq(a->entry.stored.status, 201);
	ck_assert_int_gt(a->entry.completed_at, 0);
	/* Its day was dropped: a tombstone, and never a second execution. */
	scratch_do("DELETE FROM onceward.op; DELETE FROM onceward.event");
	a = found(ledger, "k1", "content", LEDGER_COMPLETED);
	ck_assert_int_eq(a->entry.same, LEDGER_SAME);
	ck_assert(!a->entry.retained);
	ck_assert_uint_eq(a->entry.stored.status, 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(what_is_lost_before_it_expires_is_unknown)
{
	completed(ledger, "k1", "content", "the body");
	scratch_do("DELETE FROM onceward.op; DELETE FROM onceward.event");
	found(ledger, "k1", "content", LEDGER_UNKNOWN);
}
END_TEST

START_TEST(an_attempt_that_outlasts_its_retention_is_still_in_flight)
{
	struct attempt *a = NULL, *b = NULL;

	orders.retention = 1000;
	a = won(ledger, "k1", "content");
	turn_for(1010);
	b = found(ledger, "k1", "content", LEDGER_IN_FLIGHT);
	wait_for(b, 200);
	answered(b);
	found_is(b, LEDGER_IN_FLIGHT);
	settled(a, LEDGER_RELEASE);
}
END_TEST

START_TEST(a_body_that_was_not_kept_is_not_retained)
{
	struct attempt *a = won(ledger, "k1", "content");

	result_set(a, (struct span){ NULL, 0 });
	settled(a, LEDGER_COMPLETE);
	rows_are("event", "kind = 2 AND body IS NULL AND status = 201", 1);
	a = found(ledger, "k1", "content", LEDGER_COMPLETED);
	ck_assert(!a->entry.retained);
	ck_assert_uint_eq(a->entry.stored.status, 201);
	ck_assert_uint_eq(a->entry.stored.fields.n, 2);
	nothing_went_wrong();
}
END_TEST

/* By a claim, or in the very way that it ends itself: the writer says whose end it is. */
static const struct {
	int kind; /* of what somebody wrote */
	enum ledger_outcome outcome;
	enum ledger_settled settled;
} ended_before[] = {
	{ EVENT_COMPLETED, LEDGER_COMPLETE, LEDGER_FENCED },
	{ EVENT_COMPLETED, LEDGER_MARK_UNKNOWN, LEDGER_FENCED },
	{ EVENT_UNKNOWN, LEDGER_MARK_UNKNOWN, LEDGER_SETTLED }, /* that is what it says */
	{ EVENT_UNKNOWN, LEDGER_RELEASE, LEDGER_FENCED },
	{ EVENT_RELEASED, LEDGER_RELEASE, LEDGER_FENCED },
	/* An answer may still settle what nobody knows (CONTRACT 6). */
	{ EVENT_UNKNOWN, LEDGER_COMPLETE, LEDGER_SETTLED },
};

START_TEST(whose_attempt_somebody_ended_is_fenced)
{
	char key[32], sql[256];
	size_t n = ARRAY_LEN(ended_before);

	for (size_t i = 0; i < n; i++) {
		struct attempt *a = NULL;

		snprintf(key, sizeof(key), "k%zu", i);
		snprintf(sql, sizeof(sql),
			 "INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind) "
			 "SELECT op_id, 12345, expires_on, 1, %d FROM onceward.op "
			 "ON CONFLICT DO NOTHING",
			 ended_before[i].kind);
		a = won(ledger, key, "content");
		scratch_do(sql);
		result_set(a, SPAN("late"));
		settle(a, ended_before[i].outcome);
		settled_is(a, ended_before[i].settled);
	}
	found(ledger, key, "content", LEDGER_COMPLETED);
	rows_are("event", "writer = 12345", (long)n);
	rows_are("event", "writer <> 12345", 0);
	rows_are("event_late", "slot = 2 AND kind = 2", 1);
	rows_are("key", "true", (long)n);
	nothing_went_wrong();
}
END_TEST

START_TEST(without_prepared_statements_all_is_the_same)
{
	struct ledger *plain = NULL;
	struct attempt *a = NULL;

	settings.ledger.prepared = false;
	plain = ledger_open();
	completed(plain, "k1", "content", "the body");
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	replayed(reserved(plain, "k1", "content"), SPAN("the body"));
	a = won(plain, "k2", "content");
	found(plain, "k2", "content", LEDGER_IN_FLIGHT);
	settled(a, LEDGER_RELEASE);
	a = won(plain, "k2", "content");
	settled(a, LEDGER_MARK_UNKNOWN);
	found(plain, "k2", "content", LEDGER_UNKNOWN);
	nothing_went_wrong();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger");
	TCase *t = tcase_create("records");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, the_first_reserve_wins_and_its_row_stands);
	tcase_add_loop_test(t, the_same_content_is_replayed_byte_for_byte, 0, 4);
	tcase_add_test(t, large_answers_share_a_commit_up_to_a_limit);
	tcase_add_test(t, two_hundred_at_once_replay_the_same);
	tcase_add_test(t, another_content_is_different_and_tells_the_state);
	tcase_add_test(t, under_other_rules_the_raw_digest_decides);
	tcase_add_test(t, an_account_and_an_operation_have_keys_of_their_own);
	tcase_add_test(t, what_is_under_way_is_in_flight);
	tcase_add_test(t, a_lease_that_ran_out_is_unknown_without_any_sweep);
	tcase_add_test(t, what_ends_after_its_lease_leaves_the_list);
	tcase_add_test(t, a_release_frees_the_key_also_for_other_content);
	tcase_add_test(t, unknown_is_held_and_listed);
	tcase_add_test(t, what_a_sweep_had_listed_becomes_unknown_in_its_place);
	tcase_add_test(t, an_expired_response_is_not_retained_but_its_status_is_known);
	tcase_add_test(t, what_is_lost_before_it_expires_is_unknown);
	tcase_add_test(t, an_attempt_that_outlasts_its_retention_is_still_in_flight);
	tcase_add_test(t, a_body_that_was_not_kept_is_not_retained);
	tcase_add_test(t, whose_attempt_somebody_ended_is_fenced);
	tcase_add_test(t, without_prepared_statements_all_is_the_same);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
