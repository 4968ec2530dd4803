"""Unknown results, and what each recovery contract makes of them (CONTRACT 5, 6, 7)."""
import time

from harness import Later, answer, close, never, own_postgres, raw, reset, roomy, tag, until

RESEND = {"key": {"forward": "client"}, "recovery": {"contract": "resend"}}
CUT = raw(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf")
# An attempt that is to be caught in the middle is over only when its lease nearly is.
SHORT = {"ledger": {"timeout": "10s"}, "upstreams": {"orders": {
    "connect_timeout": "300ms", "timeout": "5s", "first_byte_timeout": "5s", "queue_timeout": "300ms"}}}
LEASE = {"lease": "6s", "wait": "0s"}


def unknown(response, status=503):
    assert (response.status, response.code) == (status, "idempotency_result_unknown"), response
    assert response.json()["may_have_executed"] is True
    return response


def told(t, sql):
    return ["|".join(row) for row in t.rows(sql)]


def slots(t):
    return told(t, "SELECT slot, kind, generation, source FROM onceward.event_late ORDER BY slot")


@tag("threads")
def test_a_retry_resends_an_unknown_request_once_and_its_answer_stays(t):
    upstream, gateway = t.both(idempotency=RESEND)
    key = t.key()
    upstream.on(key, reset(), answer(201, b'{"the":"answer"}'))
    first = unknown(gateway.post(key), 502)
    second = gateway.post(key)
    assert (second.status, second.body) == (201, b'{"the":"answer"}'), second
    assert second.request_id == first.json()["logical_request_id"] and not second.replayed
    again = gateway.post(key)
    assert again.replayed and again.body == second.body
    assert upstream.count(key) == 2
    sent = upstream.of(key)
    assert (sent[0].body, sent[0].target, sent[0].fields) == \
           (sent[1].body, sent[1].target, sent[1].fields), "the same bytes, the same key"
    assert slots(t) == ["2|1|2|0", "3|2|2|0"]
    assert told(t, "SELECT count(*) FROM onceward.attention") == ["0"]


def test_resends_come_with_a_growing_gap_and_end_with_max_attempts(t):
    upstream, gateway = t.both(idempotency={
        "key": {"forward": "client"}, "recovery": {"contract": "resend", "max_attempts": 3}})

    def held_back():
        """A key whose second resend has to wait; none where the machine was too slow to see it."""
        key = t.key()
        upstream.on(key, reset(), reset(), reset(), reset(), answer())
        unknown(gateway.post(key), 502)
        began = time.monotonic()
        unknown(gateway.post(key))              # the first resend, at once
        held = unknown(gateway.post(key))       # the next one has to wait
        if time.monotonic() - began >= 1:
            return None
        assert held.field("Retry-After") in ("1", "2") and upstream.count(key) == 2
        return key
    key = until(held_back, 20, "two retries within a second")
    time.sleep(1.1)
    unknown(gateway.post(key))
    assert upstream.count(key) == 3
    time.sleep(2.1)
    unknown(gateway.post(key))
    assert upstream.count(key) == 3, "three attempts and no more"


def test_after_the_resend_window_nothing_is_sent(t):
    upstream, gateway = t.both(idempotency={
        "key": {"forward": "client"},
        "recovery": {"contract": "resend", "resend_window": "1s"}, "tombstone": "30d"})
    key = t.key()
    upstream.on(key, close(), answer())
    unknown(gateway.post(key), 502)
    time.sleep(1.2)
    unknown(gateway.post(key))
    assert upstream.count(key) == 1


def test_only_the_same_bytes_are_sent_again(t):
    upstream, gateway = t.both(idempotency=RESEND)
    key = t.key()
    upstream.on(key, reset(), answer())
    unknown(gateway.post(key, b'{"a":1,"b":2}'), 502)
    unknown(gateway.post(key, b'{"b":2,"a":1}'))  # the same content, spelt another way
    assert gateway.post(key, b'{"a":2}').status == 409
    assert upstream.count(key) == 1
    assert gateway.post(key, b'{"a":1,"b":2}').status == 201


def test_a_key_that_is_spelt_another_way_is_not_sent_again(t):
    """The upstream may take "k" and k, or k in another field, for two keys."""
    upstream, gateway = t.both(idempotency={
        **RESEND, "key": {"from": ["header:Idempotency-Key", "header:X-Key"], "forward": "client"}})
    key = t.key()
    upstream.on(key, reset(), answer())
    unknown(gateway.post(key), 502)
    unknown(gateway.post(f'"{key}"'))
    unknown(gateway.post(None, fields=[("X-Key", key)]))
    unknown(gateway.post(key, fields=[("X-Key", key)]))
    assert len(upstream.arrivals) == 1
    assert gateway.post(key).status == 201 and upstream.count(key) == 2
    assert gateway.post(f'"{key}"').replayed, "of what is known the spelling does not matter"


def test_nothing_of_a_resend_is_given_free(t):
    upstream, gateway = t.both(idempotency=RESEND)
    key = t.key()
    upstream.on(key, reset(), answer(429, b"later"), answer(422, b"no"), answer(201, b"{}"))
    unknown(gateway.post(key), 502)
    unknown(gateway.post(key))  # 429 would release a first attempt
    time.sleep(1.1)
    unknown(gateway.post(key))  # 422 is not in resend_store
    time.sleep(2.1)
    assert gateway.post(key).status == 201 and upstream.count(key) == 4
    assert gateway.post(key).replayed


def test_a_resend_that_reaches_nobody_leaves_it_unknown(t):
    upstream, gateway = t.both(idempotency=RESEND)
    key = t.key()
    upstream.on(key, reset(), answer(201, b"{}"))
    unknown(gateway.post(key), 502)
    upstream.refuse()
    unknown(gateway.post(key))
    upstream.accept_again()
    time.sleep(1.1)
    assert gateway.post(key).status == 201 and upstream.count(key) == 2


def test_a_waiter_does_not_send(t):
    upstream, gateway = t.both(**roomy(idempotency=RESEND | {"wait": "20s"}))
    key = t.key()
    gate = upstream.gate(key, reset())
    upstream.on(key, answer(201, b"{}"))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    waiter = Later(lambda: gateway.post(key))
    until(lambda: gateway.metric("waiters") == 1, what="a waiter")
    gate.open()
    unknown(first.result(), 502)
    unknown(waiter.result())
    assert upstream.count(key) == 1


def test_of_many_retries_at_once_one_is_sent(t):
    upstream = t.upstream()
    one, two = (t.gateway(upstream, **roomy(idempotency=RESEND)) for _ in range(2))
    key = t.key()
    upstream.on(key, reset(), answer(201, b'{"once":"more"}'))
    unknown(one.post(key), 502)
    retries = [Later(lambda g=g: g.post(key)) for g in (one, two) * 20]
    results = [retry.result() for retry in retries]
    assert upstream.count(key) == 2
    assert all(r.status in (201, 503) for r in results), results
    assert sum(r.status == 201 and not r.replayed for r in results) == 1


def test_the_upstream_gets_a_derived_key_where_the_route_says_so(t):
    upstream, gateway = t.both(idempotency={
        "key": {"forward": "derived"}, "recovery": {"contract": "resend"}})
    key = t.key()
    response = gateway.post(key)
    assert response.status == 201, response
    sent = [a for a in upstream.arrivals if a.target == "/v1/orders"]
    derived = {a.key for a in sent}
    assert key not in derived and len(derived) == 1 and len(derived.pop()) == 64


@tag("threads")
def test_a_crash_in_a_resend_is_found_and_may_be_resent(t):
    upstream = t.upstream()
    settings = RESEND | LEASE
    one = t.gateway(upstream, top=SHORT, idempotency=settings)
    two = t.gateway(upstream, top=SHORT, idempotency=settings)
    key = t.key()
    upstream.on(key, reset())
    unknown(one.post(key), 502)
    gate = upstream.gate(key, never())
    Later(lambda: one.post(key))
    gate.arrived()
    one.kill()
    assert two.post(key).code == "idempotency_in_progress"
    until(lambda: told(t, "SELECT state, slot, generation FROM onceward.attention") == ["3|3|2"],
          20, "the list saying that it is unknown")
    upstream.on(key, answer(201, b"{}"))
    assert two.post(key).status == 201 and upstream.count(key) == 3
    assert slots(t) == ["2|1|2|0", "3|3|2|0", "4|1|3|0", "5|2|3|0"]


def test_held_nothing_is_ever_sent_again(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, reset())
    unknown(gateway.post(key), 502)
    for _ in range(5):
        unknown(gateway.post(key))
    assert upstream.count(key) == 1


# ------------------------------------------------------------------ at least once

AGAIN = {"recovery": {"contract": "at_least_once"}}


def test_where_twice_is_accepted_a_cut_answer_frees_the_key(t):
    upstream, gateway = t.both(idempotency=AGAIN)
    key = t.key()
    upstream.on(key, CUT, answer(201, b"{}"))
    cut = gateway.post(key)
    assert (cut.status, cut.code) == (502, "idempotency_result_unknown"), cut
    assert cut.json()["may_have_executed"] is True
    assert gateway.post(key).status == 201 and upstream.count(key) == 2
    assert gateway.post(key).replayed


def test_where_twice_is_accepted_a_lease_that_ran_out_frees_the_key(t):
    upstream = t.upstream()
    settings = AGAIN | LEASE
    one = t.gateway(upstream, top=SHORT, idempotency=settings)
    two = t.gateway(upstream, top=SHORT, idempotency=settings)
    key = t.key()
    gate = upstream.gate(key, never())
    Later(lambda: one.post(key))
    gate.arrived()
    one.kill()
    assert two.post(key).code == "idempotency_in_progress"
    upstream.on(key, answer(201, b"{}"))
    until(lambda: two.post(key).status == 201, 20, "the key being free")
    assert upstream.count(key) == 2
    assert told(t, "SELECT count(*) FROM onceward.stop") == ["0"]


# ------------------------------------------------------------------ late answers

@tag("threads")
def test_a_late_answer_settles_what_is_unknown(t):
    upstream = t.upstream()
    one = t.gateway(upstream, top=SHORT, idempotency=LEASE)
    two = t.gateway(upstream, top=SHORT, idempotency=LEASE)
    key = t.key()
    gate = upstream.gate(key, answer(201, b'{"late":true}'))
    first = Later(lambda: one.post(key))
    gate.arrived()
    one.pause()
    gate.open()
    two.unknown_after_lease(key, 20)
    one.resume()
    first.result()
    until(lambda: two.post(key).status == 201, what="the late answer deciding")
    assert two.post(key).body == b'{"late":true}' and upstream.count(key) == 1
    until(lambda: told(t, "SELECT count(*) FROM onceward.attention") == ["0"],
          what="the list without it, though a sweep has met it in between")


def test_a_late_answer_under_a_resend_is_kept_as_evidence(t):
    upstream = t.upstream()
    settings = RESEND | LEASE | {"response": {"receipt": "body:/id"}}
    one = t.gateway(upstream, top=SHORT, idempotency=settings)
    two = t.gateway(upstream, top=SHORT, idempotency=settings)
    key = t.key()
    late = upstream.gate(key, answer(201, b'{"id":"first"}'))
    first = Later(lambda: one.post(key))
    late.arrived()
    one.pause()
    late.open()
    time.sleep(6.2)
    upstream.on(key, answer(201, b'{"id":"second"}'))
    assert two.post(key).body == b'{"id":"second"}'
    one.resume()
    response = first.result()
    assert response.status == 201 and response.replayed, "it answers by what the record says"
    assert response.body == b'{"id":"second"}'
    until(lambda: told(t, "SELECT slot, kind FROM onceward.event_late WHERE slot < 0") == ["-1|2"])
    # Two receipts for one record: the operation stops for that account.
    until(lambda: told(t, "SELECT reason FROM onceward.stop") == ["duplicate_effect"])
    until(lambda: two.post(t.key()).code == "operation_stopped", what="the stop being obeyed")
    assert two.post(key).replayed, "what is stored is told all the same"


# ------------------------------------------------------------------ stops

def test_a_stop_forbids_new_forwards_and_nothing_else(t):
    upstream, gateway = t.both(**roomy(idempotency=RESEND))
    done, cut = t.key(), t.key()
    upstream.on(cut, reset())
    assert gateway.post(done).status == 201
    unknown(gateway.post(cut), 502)
    t.rows("SELECT onceward.raise_stop('orders.create', NULL, 'operator', 'a test', 'me')")
    key = t.key()
    time.sleep(2)  # every thread of every gateway obeys by now
    stopped = gateway.post(t.key())
    assert stopped.code == "operation_stopped", stopped
    assert stopped.status == 503 and stopped.field("Retry-After")
    assert stopped.json()["may_have_executed"] is False
    for _ in range(6):
        assert gateway.post(key).code == "operation_stopped" and upstream.count(key) == 0
    assert gateway.post(done).replayed and gateway.post(done, b'{"b":1}').status == 409
    resend = gateway.post(cut)
    assert resend.code == "operation_stopped" and upstream.count(cut) == 1, resend
    assert resend.json()["may_have_executed"] is True
    change = gateway.request("PATCH", "/v1/orders/7", [("Idempotency-Key", t.key())], b"{}")
    assert change.status == 201, "another operation goes on"
    assert gateway.metric("operations_stopped", reason="operator") == 1
    t.rows("SELECT onceward.end_stops('orders.create', NULL, 'me', 'all is well')")
    until(lambda: gateway.post(key).status == 201, what="new forwards")
    until(lambda: gateway.post(cut).status == 201, what="the resend")


def test_an_answer_to_what_others_gave_free_claims_nothing_and_neither_does_its_stop(t):
    upstream, gateway = t.both()
    key = t.key()
    gate = upstream.gate(key, answer(201, fields=[("Location", "/orders/1")]))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.rows("UPDATE onceward.op SET lease_until = now() - interval '1 s'")
    record = unknown(gateway.post(key)).json()["logical_request_id"]
    resolved = t.run("records", "resolve", record, "--not-executed", "--evidence", "a test", "-c", gateway.file)
    assert resolved.returncode == 0, resolved.stderr
    gate.open()
    unknown(first.result())
    until(lambda: told(t, "SELECT reason FROM onceward.stop") == ["late_effect"])
    time.sleep(2)  # every thread obeys by now
    stopped = gateway.post(key)
    assert stopped.code == "operation_stopped" and stopped.json()["may_have_executed"] is True, stopped
    assert upstream.count(key) == 1


def test_a_stop_of_an_account_is_that_accounts_alone(t):
    upstream, gateway = t.both(idempotency={"account": "behind"})
    t.rows("SELECT onceward.raise_stop('orders.create', 'mallory', 'late_effect', 'a test', 'me')")
    def ask(who):
        return gateway.post(t.key(), fields=[("X-Account", who)])
    until(lambda: ask("mallory").code == "operation_stopped", what="the stop being obeyed")
    assert ask("alice").status == 201
    for who in ("bob", "carol"):
        t.rows(f"SELECT onceward.raise_stop('orders.create', '{who}', 'late_effect', 'a test', 'me')")
    until(lambda: ask("alice").code == "operation_stopped", what="the third account stopping all")


def test_a_stored_response_that_was_changed_is_not_replayed_and_people_are_told(t):
    upstream, gateway = t.both()
    key = t.key()
    gateway.post(key)
    t.rows("UPDATE onceward.event SET body = 'another'")
    assert gateway.post(key).code == "operation_stopped"
    until(lambda: told(t, "SELECT reason, op_id IS NOT NULL FROM onceward.stop") ==
          ["replay_mismatch|t"])
    assert gateway.post(t.key()).status == 201, "nothing else is stopped"


def test_an_account_with_too_many_unknown_results_gets_no_new_keys(t):
    upstream, gateway = t.both(idempotency={"account": "behind", "max_unknown_per_account": 2})

    def ask(who, key):
        return gateway.post(key, fields=[("X-Account", who)])
    for _ in range(2):
        key = t.key()
        upstream.on(key, reset())
        unknown(ask("mallory", key), 502)
    until(lambda: ask("mallory", t.key()).code == "overloaded", what="the limit being seen")
    assert ask("alice", t.key()).status == 201


def test_one_receipt_under_two_keys_stops_the_account(t):
    upstream, gateway = t.both(idempotency={
        "response": {"receipt": "body:/id", "receipt_unique": True}})
    one, two = t.key(), t.key()
    upstream.on(one, answer(201, b'{"id":"7"}'))
    upstream.on(two, answer(201, b'{"id":"7"}'))
    assert gateway.post(one).status == 201 and gateway.post(two).status == 201
    assert told(t, "SELECT reason FROM onceward.stop") == ["duplicate_effect"]
    until(lambda: gateway.post(t.key()).code == "operation_stopped", what="the stop being obeyed")
    assert gateway.post(one).replayed and gateway.post(two).replayed
    until(lambda: gateway.metric("duplicate_effects_total") == 1, what="the count")


# ------------------------------------------------------------------ the ledger is away

@own_postgres
def test_where_the_route_says_so_an_answer_is_delivered_that_is_not_recorded_yet(t):
    upstream, gateway = t.both(**roomy(idempotency={
        "settle_wait": "500ms", "on_settle_failure": "deliver"}))
    key = t.key()
    gate = upstream.gate(key, answer(201, b'{"the":"answer"}'))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.stop()
    gate.open()
    response = first.result()
    assert (response.status, response.body) == (201, b'{"the":"answer"}'), response
    assert response.field("Idempotency-Recorded") == "false"
    assert response.field("Idempotency-Expires") is None
    t.postgres.start()
    again = until(lambda: (r := gateway.post(key)).status == 201 and r, 15)
    assert again.replayed and again.body == response.body and upstream.count(key) == 1


def test_what_is_stored_is_counted(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, answer(201, b"x" * 1000))
    assert gateway.post(key).status == 201
    assert 1000 < gateway.metric("stored_bytes_total") < 1200
    gateway.post(key)
    assert gateway.metric("stored_bytes_total") < 1200, "a replay stores nothing"
