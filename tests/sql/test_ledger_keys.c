/*
 * Records under several digest keys: each is compared under its own, a key that is missing is
 * noticed before and after a record of it is met, and others hear of ours.
 */
#include "ledger_rig.h"

static struct ledger *ledger;
static const struct digest_key ring[] = { { .id = 2, .len = 1 }, { .id = 1, .len = 1 } };
static unsigned asked; /* how often a digest under another key was wanted */

static void set_up_keys(void)
{
	set_up();
	scratch_do("TRUNCATE onceward.digest_key");
	asked = 0;
}

/* A reload: these are the keys now. */
static void keys_are(const struct digest_key *at, size_t n)
{
	settings.digest_keys = (struct digest_keys){ at, n };
	if (ledger)
		ledger_follow(ledger, &settings);
}

/* The content's digest under a key: the first byte says which. */
static void under(struct digest *digest, int32_t key_id)
{
	digest->key_id = key_id;
	digest->canonical[0] = digest->raw[0] = (unsigned char)key_id;
}

static bool digest_under(struct ledger_entry *entry, int32_t key_id, struct digest *out)
{
	asked++;
	*out = entry->digest;
	under(out, key_id);
	return digest_keys_verify(&settings.digest_keys, key_id);
}

static struct attempt *keyed(const char *key, const char *content)
{
	const struct digest_key *making = digest_keys_making(&settings.digest_keys);
	struct attempt *a = attempt_new(ledger, key, content);

	under(&a->entry.digest, making ? making->id : 0);
	a->entry.digest_under = digest_under;
	reserve(a);
	answered(a);
	return a;
}

static void done(struct attempt *a)
{
	found_is(a, LEDGER_WON);
	result_set(a, SPAN("body"));
	settled(a, LEDGER_COMPLETE);
}

static void begin(const struct digest_key *at, size_t n)
{
	ledger = NULL;
	keys_are(at, n);
	ledger = ledger_open();
}

START_TEST(a_record_is_compared_under_the_key_that_made_it)
{
	begin(&ring[1], 1);
	done(keyed("k", "content"));
	keys_are(ring, 2); /* another one makes now, and the old one verifies */
	replayed(keyed("k", "content"), SPAN("body"));
	ck_assert_uint_eq(asked, 1);
	ck_assert_int_eq(keyed("k", "other")->entry.same, LEDGER_DIFFERENT);
	done(keyed("k2", "content"));
	asked = 0;
	replayed(keyed("k2", "content"), SPAN("body"));
	ck_assert_uint_eq(asked, 0); /* the digest it has is the one that is needed */
}
END_TEST

START_TEST(the_raw_digest_is_compared_under_that_key_too)
{
	begin(&ring[1], 1);
	done(keyed("k", "content"));
	keys_are(ring, 2);
	orders.rules.id++;
	replayed(keyed("k", "content"), SPAN("body"));
	ck_assert_int_eq(keyed("k", "other")->entry.same, LEDGER_RULES_CHANGED);
}
END_TEST

START_TEST(records_from_before_there_were_keys_are_verified_without_one)
{
	begin(NULL, 0);
	done(keyed("k", "content"));
	rows_are("digest_key", "true", 0);
	keys_are(ring, 2);
	replayed(keyed("k", "content"), SPAN("body"));
	ck_assert_int_eq(keyed("k", "other")->entry.same, LEDGER_DIFFERENT);
}
END_TEST

START_TEST(a_record_under_a_missing_key_is_not_available_and_the_others_are)
{
	begin(&ring[1], 1);
	done(keyed("k", "content"));
	keys_are(&ring[0], 1);
	TURN_UNTIL(ledger_state(ledger).missing_key == 1);
	found_is(keyed("k", "content"), LEDGER_UNAVAILABLE);
	done(keyed("k2", "content"));
	replayed(keyed("k2", "content"), SPAN("body"));
	ck_assert(ledger_state(ledger).up);
	keys_are(ring, 2);
	TURN_UNTIL(ledger_state(ledger).missing_key == 0);
	replayed(keyed("k", "content"), SPAN("body"));
}
END_TEST

START_TEST(a_missing_key_that_is_in_no_list_is_noticed_when_it_is_met)
{
	begin(&ring[1], 1);
	done(keyed("k", "content"));
	scratch_do("DELETE FROM onceward.digest_key");
	keys_are(&ring[0], 1);
	TURN_UNTIL(rows("digest_key", "id = 2") > 0);
	turn_for(50);
	ck_assert_int_eq(ledger_state(ledger).missing_key, 0);
	found_is(keyed("k", "content"), LEDGER_UNAVAILABLE);
	ck_assert_int_eq(ledger_state(ledger).missing_key, 1);
	ck_assert_ptr_nonnull(strstr(logged, "digest key 1"));
}
END_TEST

START_TEST(keys_of_other_gateways_are_looked_for_at_the_beginning_and_now_and_then)
{
	scratch_do("INSERT INTO onceward.digest_key VALUES (7, current_date + 3)");
	ledger = NULL;
	keys_are(ring, 2);
	ledger = ledger_begin();
	ck_assert_int_eq(ledger_state(ledger).missing_key, LEDGER_KEYS_NOT_KNOWN);
	TURN_UNTIL(ledger_state(ledger).missing_key == 7);
	scratch_do("DELETE FROM onceward.digest_key WHERE id = 7");
	ledger->keys_at_ms = 0; /* the minute is over */
	TURN_UNTIL(ledger_state(ledger).missing_key == 0);
}
END_TEST

START_TEST(a_key_counts_until_its_last_record_has_gone)
{
	scratch_do("INSERT INTO onceward.digest_key VALUES (7, current_date - 2)");
	orders.tombstone = (int64_t)30 * 86400000 + 1;
	begin(ring, 2);
	ck_assert_int_eq(ledger_state(ledger).missing_key, 0); /* 7 is over */
	rows_are("digest_key", "id = 2 AND keep_until = (now() AT TIME ZONE 'UTC')::date + 33",
		 1);
	rows_are("digest_key", "id <> 7", 1); /* what only verifies is not written down */
	orders.tombstone *= 2;
	keys_are(ring, 2);
	TURN_UNTIL(rows("digest_key", "id = 2") == 2);
}
END_TEST

START_TEST(a_key_counts_while_a_record_under_it_waits_for_somebody)
{
	begin(&ring[1], 1);
	done(keyed("k", "content"));
	scratch_do("DELETE FROM onceward.digest_key");
	keys_are(&ring[0], 1);
	TURN_UNTIL(rows("digest_key", "id = 2") > 0);
	turn_for(50);
	ck_assert_int_eq(ledger_state(ledger).missing_key, 0);
	scratch_do(
		"INSERT INTO onceward.attention (created_at, op_id, expires_on, state, slot, "
		"key_hash, account, operation, key, cause) SELECT now() - interval '90 days', "
		"op_id, current_date - 60, 3, 1, key_hash, '', '', '', '' FROM onceward.key");
	ledger->keys_at_ms = 0;
	TURN_UNTIL(ledger_state(ledger).missing_key == 1);
	scratch_do("DELETE FROM onceward.attention");
	ledger->keys_at_ms = 0;
	TURN_UNTIL(ledger_state(ledger).missing_key == 0);
}
END_TEST

START_TEST(an_exchange_that_has_gone_is_not_asked_for_digests)
{
	struct attempt *a = NULL;
	struct pg_session *session = NULL;

	begin(&ring[1], 1);
	done(keyed("k", "content"));
	keys_are(ring, 2);
	session = lock("key");
	a = attempt_new(ledger, "k", "content");
	under(&a->entry.digest, 2);
	a->entry.digest_under = digest_under;
	reserve_within(a, 100);
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE);
	unlock(session);
	TURN_UNTIL(ledger_busy(ledger) == 0);
	ck_assert_uint_eq(asked, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_keys");
	TCase *t = tcase_create("keys");

	tcase_add_checked_fixture(t, set_up_keys, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_record_is_compared_under_the_key_that_made_it);
	tcase_add_test(t, the_raw_digest_is_compared_under_that_key_too);
	tcase_add_test(t, records_from_before_there_were_keys_are_verified_without_one);
	tcase_add_test(t, a_record_under_a_missing_key_is_not_available_and_the_others_are);
	tcase_add_test(t, a_missing_key_that_is_in_no_list_is_noticed_when_it_is_met);
	tcase_add_test(t,
		       keys_of_other_gateways_are_looked_for_at_the_beginning_and_now_and_then);
	tcase_add_test(t, a_key_counts_until_its_last_record_has_gone);
	tcase_add_test(t, a_key_counts_while_a_record_under_it_waits_for_somebody);
	tcase_add_test(t, an_exchange_that_has_gone_is_not_asked_for_digests);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
