"""What became of a request is asked of the API by reference (CONTRACT 7, contract "lookup"), and what
is unknown for too long has an end where the operator wants one (deadline, after_deadline, stop)."""
import json
import os
import time
import urllib.parse
from contextlib import suppress

from harness import SLOW, Cut, Later, answer, lasting, merged, own_postgres, tag, unhurried, until

PATH = "/v1/by-key/"
LOOKUP = {"contract": "lookup", "lookup_path": PATH + "{key}"}
# As short as a busy machine allows: of an attempt that was cut off "not found" says something when
# its lease is over.
LEASE, FIRST_BYTE = 3, 1.2
FAST = {"lease": lasting(LEASE), "wait": "0s"}
UPSTREAM = {"upstreams": {"orders": {"connect_timeout": lasting(0.2), "queue_timeout": lasting(0.2),
                                     "first_byte_timeout": lasting(FIRST_BYTE),
                                     "idle_timeout": lasting(FIRST_BYTE), "timeout": lasting(1.5)}}}
SLOWLY = unhurried()  # where the upstream takes its time over a question


class Book:
    """An API that can be asked by key: it knows what it has done, and in which state that is."""

    def __init__(self, upstream):
        self.upstream, self.done, self.state = upstream, {}, {}
        self.lookup = None  # what to do with questions instead
        upstream.default = self

    def __call__(self, turn):
        target = turn.arrival.target.split("?")[0]
        if turn.arrival.method == "GET" and target.startswith(PATH):
            if self.lookup:
                return self.lookup(turn)
            return self.find(urllib.parse.unquote(target[len(PATH):]))(turn)
        self.commit(turn.arrival.key)
        return answer(201, b'{"ok":true}')(turn)

    def find(self, key):
        if key not in self.done:
            return answer(404, b'{"error":"no such order"}')
        return answer(200, json.dumps({
            "id": self.done[key], "status": self.state.get(key, "done"),
            "links": {"self": f"http://127.0.0.1:{self.upstream.port}/v1/orders/{self.done[key]}"},
        }).encode())

    def commit(self, key):
        self.done[key] = self.done.get(key, 0) + 1

    def commit_then_reset(self, key):
        def act(turn):
            self.commit(key)
            return turn.reset()
        self.upstream.on(key, act)

    def lose(self, key):
        """The next request of this key is cut off, and nothing was done."""
        self.upstream.on(key, lambda turn: turn.reset())

    def asked(self, key):
        return self.upstream.count(PATH + urllib.parse.quote(key, safe="-._~"))

    def executed(self, key):
        return self.done.get(key, 0)


def stage(t, recovery=None, idempotency=None, top=None):
    upstream = t.upstream()
    book = Book(upstream)
    gateway = t.gateway(upstream, top=merged(UPSTREAM, top),
                        idempotency={**FAST, **(idempotency or {}),
                                     "recovery": {**LOOKUP, **(recovery or {})}})
    return book, gateway


def unknown(gateway, key):
    first = gateway.post(key)
    assert (first.status, first.code) == (502, "idempotency_result_unknown"), first
    return first


def settled(gateway, key, seconds=10):
    """Asks again until the answer is not that nobody knows."""
    def ask():
        response = gateway.post(key)
        if response.code in ("idempotency_result_unknown", "idempotency_in_progress"):
            time.sleep(0.2)
            return None
        return response
    return until(ask, seconds, "the record being settled")


def held(gateway, key, seconds, seen=lambda: True):
    """For so long, and at least until `seen` has been true, nobody knows."""
    end = time.monotonic() + seconds
    while time.monotonic() < end or not seen():
        assert time.monotonic() < end + 20 * SLOW, "what was waited for did not happen"
        response = gateway.post(key)
        assert response.code == "idempotency_result_unknown", response
        time.sleep(0.2)


def looked(gateway, result):
    return gateway.metric("lookups_total", result=result)


def test_what_was_done_before_the_reset_is_found_and_replayed(t):
    book, gateway = stage(t, {"found_location": "/links/self", "found_status": 201})
    key = t.key()
    book.commit_then_reset(key)
    first = unknown(gateway, key)
    again = settled(gateway, key)
    assert (again.status, again.body) == (201, b""), again
    assert again.field("Location") == "/v1/orders/1", "relative, as in first answers"
    assert again.field("Idempotency-Recovered") == "lookup" and again.replayed
    assert again.request_id == first.json()["logical_request_id"]
    assert gateway.post(key).head == gateway.post(key).head
    assert book.executed(key) == 1 and book.asked(key) >= 1
    assert looked(gateway, "found") >= 1
    assert gateway.post(key, body=b"{}").code == "idempotency_payload_mismatch"


def test_an_api_may_be_asked_by_the_names_that_the_forward_brought_along(t):
    book, gateway = stage(t, {"lookup_path": PATH + "{attempt_id}"})
    key, names = t.key(), []

    def act(turn):
        names.append((turn.arrival.field("X-Onceward-Request-Id"),
                      turn.arrival.field("X-Onceward-Attempt-Id")))
        book.commit(names[0][1])
        return turn.reset()
    book.upstream.on(key, act)
    first = unknown(gateway, key)
    request_id = first.json()["logical_request_id"]
    assert names == [(request_id, request_id + ".1")]
    until(lambda: gateway.post(key).status == 200, 10, "it being found")
    assert book.upstream.count(key) == 1


def test_it_is_looked_up_in_the_background_without_a_retry(t):
    book, gateway = stage(t)
    key = t.key()
    book.commit_then_reset(key)
    unknown(gateway, key)
    until(lambda: not t.rows("SELECT op_id FROM onceward.attention"), 10, "the list being empty")
    assert t.rows("SELECT kind, source, status FROM onceward.event_late WHERE slot > 0") == \
        [["2", "1", "200"]]
    assert gateway.post(key).status == 200


def test_what_is_pending_stays_unknown_until_it_is_not(t):
    book, gateway = stage(t, {"pending_when": {"pointer": "/status", "equals": "pending"}})
    key = t.key()
    book.commit_then_reset(key)
    book.state[key] = "pending"
    unknown(gateway, key)
    held(gateway, key, 3, lambda: looked(gateway, "pending") >= 1)
    assert looked(gateway, "found") == 0
    book.state[key] = "done"
    assert settled(gateway, key).status == 200
    assert book.executed(key) == 1


def test_a_document_that_does_not_say_what_is_wanted_settles_nothing(t):
    book, gateway = stage(t, {"found_when": {"pointer": "/status", "equals": "done"}})
    key = t.key()
    book.commit_then_reset(key)
    book.state[key] = "failed"
    unknown(gateway, key)
    held(gateway, key, 2, lambda: looked(gateway, "pending") >= 1)
    book.state[key] = "done"
    assert settled(gateway, key).status == 200


def test_not_found_twice_beside_a_control_makes_the_key_free(t):
    book, gateway = stage(t, {"not_found_after": "1s"})
    other, key = t.key(), t.key()
    assert gateway.post(other).status == 201
    time.sleep(1.2)  # what is looked for is not of this moment
    book.lose(key)
    first = unknown(gateway, key)
    again = settled(gateway, key, 20)
    assert again.status == 201 and not again.replayed, again
    assert again.request_id != first.json()["logical_request_id"], "it is a new record"
    assert book.executed(key) == 1 and book.upstream.count(key) == 2
    gateway.until_metric(1, "lookups_total", result="released")
    assert looked(gateway, "not_found") >= 2
    assert book.asked(other) >= 1, "the control"
    assert gateway.post(key).replayed


def test_the_two_lie_apart_and_behind_the_lease(t):
    book, gateway = stage(t, {"not_found_after": "2s"}, {"lease": lasting(3)})
    key = t.key()
    assert gateway.post(t.key()).status == 201
    began = time.monotonic()
    book.lose(key)
    unknown(gateway, key)
    until(lambda: looked(gateway, "released"), 20, "the release")
    assert time.monotonic() - began >= 3 * SLOW + 2, "lease and not_found_after"


def test_not_found_proves_nothing_where_nobody_said_after_what_time(t):
    book, gateway = stage(t)
    key = t.key()
    assert gateway.post(t.key()).status == 201
    book.lose(key)
    unknown(gateway, key)
    held(gateway, key, 3 + LEASE * SLOW, lambda: looked(gateway, "not_found") >= 2)
    assert book.upstream.count(key) == 1


def test_not_found_proves_nothing_without_a_record_that_is_found(t):
    book, gateway = stage(t, {"not_found_after": "1s"})
    key = t.key()
    book.lose(key)
    unknown(gateway, key)
    held(gateway, key, 5 + LEASE * SLOW, lambda: looked(gateway, "not_found") >= 2)
    assert book.upstream.count(key) == 1 and looked(gateway, "released") == 0


def test_a_control_that_fails_holds_all_lookups_of_the_operation(t):
    book, gateway = stage(t, {"not_found_after": "1s"})
    done, lost = t.key(), t.key()
    assert gateway.post(done).status == 201
    time.sleep(1.2)
    book.lookup = answer(404, b"{}")  # it finds nothing any more
    book.lose(lost)
    unknown(gateway, lost)
    until(lambda: looked(gateway, "control_failed"), 10, "the control failing")
    until(lambda: any(line["level"] == "error" and "does not find a record" in line["message"]
                      for line in gateway.log_lines()), what="the line in the log")
    until(lambda: not t.rows("SELECT 1 FROM onceward.attention WHERE owner IS NOT NULL"),
          what="what was being asked being answered")
    before = book.asked(lost)
    held(gateway, lost, 3)
    assert book.asked(lost) == before and book.upstream.count(lost) == 1
    book.lookup = None
    assert settled(gateway, lost, 30).status == 201
    assert book.executed(lost) == 1


def test_credentials_that_are_refused_hold_everything(t):
    book, gateway = stage(t, {"not_found_after": "1s"})
    key = t.key()
    assert gateway.post(t.key()).status == 201
    book.lookup = answer(401, b"{}")
    book.commit_then_reset(key)
    unknown(gateway, key)
    held(gateway, key, 3, lambda: looked(gateway, "failed") >= 1)
    gateway.until_logged("answered with status 401")
    book.lookup = None
    assert settled(gateway, key, 15).status == 200


def test_an_api_that_is_away_is_asked_again_later(t):
    book, gateway = stage(t)
    key = t.key()
    book.commit_then_reset(key)
    unknown(gateway, key)
    book.upstream.refuse()
    time.sleep(2)
    book.upstream.accept_again()
    assert settled(gateway, key, 20).status == 200
    assert book.executed(key) == 1


def test_an_answer_that_is_cut_off_or_late_says_nothing(t):
    book, gateway = stage(t)
    key = t.key()
    book.upstream.on(PATH + key, lambda turn: turn.reset(),
                     lambda turn: turn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{") and False,
                     lambda turn: time.sleep(FIRST_BYTE * SLOW + 1))
    book.commit_then_reset(key)
    unknown(gateway, key)
    assert settled(gateway, key, 20).status == 200
    assert book.asked(key) == 4 and looked(gateway, "failed") == 3


@own_postgres
def test_a_ledger_that_is_away_while_it_is_asked_loses_nothing(t):
    book, gateway = stage(t)
    key = t.key()
    gate = book.upstream.gate(PATH + key, book)
    book.commit_then_reset(key)
    unknown(gateway, key)
    gate.arrived()
    t.postgres.stop()
    gate.open()
    time.sleep(1)
    t.postgres.start()
    until(lambda: gateway.admin("/readyz").status == 200, 15, "the gateway being ready")

    def ask():
        response = gateway.post(key)
        return response if response.status == 200 else time.sleep(0.2)
    assert until(ask, 30, "the answer").field("Idempotency-Recovered") == "lookup"
    assert book.executed(key) == 1


def test_credentials_are_sent_and_never_logged(t):
    file = os.path.join(t.directory, "lookup.headers")
    with open(file, "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o600)) as out:
        out.write("# for the orders API\nAuthorization: Bearer very-secret-thing\n\n"
                  "Accept: application/json\n")
    book, gateway = stage(t, {"headers_file": file}, top={"log": {"level": "debug"}})
    key = t.key()
    book.commit_then_reset(key)
    unknown(gateway, key)
    assert settled(gateway, key).status == 200
    question = book.upstream.of(PATH + key)[0]
    assert question.field("Authorization") == "Bearer very-secret-thing"
    assert question.field("Accept") == "application/json"
    assert question.field("Accept-Encoding") == "identity"
    assert question.field("Host") == f"127.0.0.1:{book.upstream.port}" and not question.body
    assert "very-secret" not in gateway.log() and key not in gateway.log()


def test_a_key_stays_one_segment_whatever_its_bytes(t):
    book, gateway = stage(t)
    for key in ("a/b?c=d&e", "100%;x", "a+b c".replace(" ", "~"), "#x"):
        book.commit_then_reset(key)
        unknown(gateway, key)
        assert settled(gateway, key).status == 200, key
        assert book.asked(key) >= 1 and book.executed(key) == 1, key


def test_a_key_of_dots_is_not_asked_for(t):
    book, gateway = stage(t, {"not_found_after": "1s"})
    assert gateway.post(t.key()).status == 201
    book.lose("..")
    unknown(gateway, "..")
    held(gateway, "..", 4)
    assert not [a for a in book.upstream.arrivals if a.method == "GET" and ".." in a.target]


def test_account_request_and_attempt_can_be_named(t):
    path = "/v1/find?a={account}&r={logical_request_id}&t={attempt_id}"
    book, gateway = stage(t, {"lookup_path": path})
    key = t.key()
    book.upstream.on("/v1/find", answer(200, b"{}"))
    book.commit_then_reset(key)
    request_id = unknown(gateway, key).json()["logical_request_id"]
    assert settled(gateway, key).status == 200
    assert book.upstream.of("/v1/find")[0].target == \
        f"/v1/find?a=public&r={request_id}&t={request_id}.1"


@tag("threads")
def test_two_gateways_never_ask_together(t):
    upstream = t.upstream()
    book = Book(upstream)
    gateways = [t.gateway(upstream, **unhurried(idempotency={"wait": "0s", "recovery": LOOKUP}))
                for _ in range(2)]
    asking, worst, keys = {}, [0], [t.key() for _ in range(20)]

    def slowly(turn):
        target = turn.arrival.target
        asking[target] = asking.get(target, 0) + 1
        worst[0] = max(worst[0], asking[target])
        time.sleep(0.2)
        asking[target] -= 1
        return book.find(target[len(PATH):])(turn)
    book.lookup = slowly
    for key in keys:
        book.commit_then_reset(key)
        unknown(gateways[0], key)
    until(lambda: not t.rows("SELECT op_id FROM onceward.attention"), 30, "all being found")
    assert worst[0] == 1
    for key in keys:
        assert gateways[1].post(key).status == 200 and book.asked(key) == 1
    assert book.executed(keys[0]) == 1


def test_whoever_crashes_while_asking_is_followed_by_another(t):
    upstream = t.upstream()
    book = Book(upstream)
    gateways = [t.gateway(upstream, top=UPSTREAM, idempotency={**FAST, "recovery": LOOKUP},
                          start=i == 0) for i in range(2)]
    key = t.key()
    gate = upstream.gate(PATH + key, book)
    book.commit_then_reset(key)
    unknown(gateways[0], key)
    gate.arrived()
    gateways[0].kill()
    gate.open()
    gateways[1].start()
    assert settled(gateways[1], key, 20).status == 200
    assert book.executed(key) == 1


def test_a_gateway_that_ends_does_not_wait_for_what_it_asks(t):
    book, gateway = stage(t, top={**SLOWLY["top"], "drain_timeout": "50s"},
                          idempotency=SLOWLY["idempotency"])
    key = t.key()
    gate = book.upstream.gate(PATH + key)
    book.commit_then_reset(key)
    unknown(gateway, key)
    gate.arrived()
    gateway.term()
    assert gateway.process.wait(15 * SLOW) == 0, "long before there is an answer"
    gate.open()


def test_a_reload_while_it_is_asked_changes_nothing_for_that(t):
    book, gateway = stage(t, **SLOWLY)
    key, later = t.key(), t.key()
    gate = book.upstream.gate(PATH + key, book)
    book.commit_then_reset(key)
    unknown(gateway, key)
    gate.arrived()
    gateway.settings["routes"][0]["idempotency"]["recovery"] = {
        **LOOKUP, "lookup_path": "/v2/find/{key}"}
    gateway.write()
    gateway.hup()
    until(lambda: "are in effect" in gateway.log(), 5, "the reload")
    gate.open()
    assert settled(gateway, key).status == 200
    book.upstream.on("/v2/find/" + later, answer(200, b"{}"))
    book.commit_then_reset(later)
    unknown(gateway, later)
    assert settled(gateway, later).status == 200
    assert book.upstream.count("/v2/find/" + later) == 1


def test_a_retry_waits_for_what_a_lookup_finds(t):
    book, gateway = stage(t, idempotency={"wait": "20s"})
    key = t.key()
    book.upstream.on(PATH + key, answer(503, b"{}"))
    book.commit_then_reset(key)
    unknown(gateway, key)
    until(lambda: book.asked(key) == 1, 5, "the first question")
    response = gateway.post(key)
    assert response.status == 200 and response.field("Idempotency-Recovered") == "lookup", response


# ---------------------------------------------------------------------------- too long

def test_what_is_unknown_for_too_long_is_told_once(t):
    upstream, gateway = t.both(idempotency={"owner": "orders-oncall", "recovery": {"deadline": "2s"}})
    key = t.key()
    upstream.on(key, lambda turn: turn.reset())
    request_id = gateway.post(key).json()["logical_request_id"]

    def lines():
        return [line for line in gateway.log_lines() if request_id in line.get("message", "")]
    until(lines, 12, "the alert")
    time.sleep(6)
    assert len(lines()) == 1 and "orders-oncall" in lines()[0]["message"]
    assert lines()[0]["level"] == "warning" and gateway.metric("overdue_total") == 1
    assert gateway.post(key).code == "idempotency_result_unknown", "it holds"


def test_a_final_deadline_ends_the_record_with_an_answer_that_says_so(t):
    upstream, gateway = t.both(idempotency={"owner": "orders-oncall", "recovery": {
        "deadline": "2s", "after_deadline": "final"}})
    key = t.key()
    upstream.on(key, lambda turn: turn.reset())
    request_id = gateway.post(key).json()["logical_request_id"]

    def ask():
        response = gateway.post(key)
        return response if response.code == "outcome_undetermined" else time.sleep(0.2)
    response = until(ask, 15, "the record being final")
    assert response.status == 503 and response.replayed
    assert response.request_id == request_id
    assert response.field("Idempotency-Verdict") == "outcome_undetermined"
    document = response.json()
    assert document["may_have_executed"] is True and document["retry"] == "never"
    assert document["logical_request_id"] == request_id and document["owner"] == "orders-oncall"
    assert upstream.count(key) == 1
    assert gateway.post(key).body == response.body
    assert not t.rows("SELECT op_id FROM onceward.attention")


def test_two_gateways_end_a_record_once(t):
    upstream = t.upstream()
    final = {"recovery": {"deadline": "2s", "after_deadline": "final"}}
    gateways = [t.gateway(upstream, idempotency=final) for _ in range(2)]
    keys = [t.key() for _ in range(10)]
    for key in keys:
        upstream.on(key, lambda turn: turn.reset())
        gateways[0].post(key)
    until(lambda: not t.rows("SELECT op_id FROM onceward.attention"), 20, "all being final")
    assert t.rows("SELECT count(*), count(DISTINCT op_id), min(slot) FROM onceward.event_late "
                  "WHERE kind = 2 AND source = 4") == [["10", "10", "2"]]
    until(lambda: sum(gateway.metric("overdue_total") for gateway in gateways) >= 10, what="the count")
    assert sum(gateway.metric("overdue_total") for gateway in gateways) == 10


def test_an_operation_stops_when_a_result_is_unknown_for_too_long(t):
    upstream, gateway = t.both(idempotency={"recovery": {"deadline": "2s", "stop": True}})
    key = t.key()
    upstream.on(key, lambda turn: turn.reset())
    gateway.post(key)
    stops = "SELECT operation, account, reason FROM onceward.stop WHERE ended_at IS NULL"
    until(lambda: t.rows(stops) == [["orders.create", "", "unknown_age"]], 15, "the stop")
    until(lambda: gateway.post(t.key()).code == "operation_stopped", 5, "it being obeyed")
    t.rows("SELECT onceward.end_stops('orders.create', NULL, 'test', 'looked at it')")
    until(lambda: gateway.post(t.key()).status == 201, 5, "it going on")
    time.sleep(6)
    assert not t.rows(stops), "who resumes it is not stopped again for the same record"


def test_under_a_stop_it_is_looked_up_all_the_same(t):
    book, gateway = stage(t)
    key = t.key()
    book.lookup = answer(503, b"{}")
    book.commit_then_reset(key)
    unknown(gateway, key)
    t.rows("SELECT onceward.raise_stop('orders.create', NULL, 'operator', 'a test', 'me')")
    until(lambda: gateway.post(t.key()).code == "operation_stopped", 5, "the stop")
    book.lookup = None
    until(lambda: not t.rows("SELECT op_id FROM onceward.attention"), 15, "it being found")
    assert gateway.post(key).field("Idempotency-Recovered") == "lookup"
    assert book.executed(key) == 1


def test_nothing_is_asked_or_said_of_what_is_settled_in_time(t):
    book, gateway = stage(t, {"deadline": "2s"})
    keys = [t.key() for _ in range(5)]
    calls = [Later(lambda key=key: gateway.post(key)) for key in keys]
    for call in calls:
        assert call.result().status == 201
    time.sleep(6)
    assert gateway.metric("overdue_total") == 0
    assert not [a for a in book.upstream.arrivals if a.method == "GET"]


def not_freed(after, key, executed):
    """`after` asks for it in vain, beside a control that it finds, and nothing comes of it."""
    until(lambda: after.post(key).code == "idempotency_result_unknown", 20, "it being unknown")
    for _ in range(3):
        assert after.post(after.stage.key()).status == 201
    end = time.monotonic() + 12 * SLOW
    while time.monotonic() < end or after.metric("lookups_total", result="not_found") < 4:
        response = after.post(key)
        assert response.code == "idempotency_result_unknown", response
        time.sleep(0.2)
    assert executed(key) == 1, "executed twice"
    assert after.metric("lookups_total", result="control_failed") == 0


def test_what_another_contract_sent_without_a_name_is_not_given_free_by_it(t):
    upstream = t.upstream()
    names, done, key = Book(upstream), [], t.key()

    def act(turn):
        if turn.arrival.method == "GET":
            return names(turn)
        done.append(turn.arrival.key)
        names.commit(turn.arrival.field("X-Onceward-Request-Id"))
        return answer(201)(turn)
    upstream.default = act
    upstream.on(key, lambda turn: (done.append(key), turn.reset())[1])
    before = t.gateway(upstream, top=UPSTREAM, idempotency=FAST)  # holds; the other is deployed next
    after = t.gateway(upstream, top=UPSTREAM, idempotency={**FAST, "recovery": {
        "contract": "lookup", "lookup_path": PATH + "{logical_request_id}", "not_found_after": "1s"}})
    assert before.post(key).status == 502
    not_freed(after, key, done.count)


def test_what_was_sent_to_another_upstream_is_not_given_free_by_this_one(t):
    old, new = t.upstream(), t.upstream()
    book, other, key = Book(old), Book(new), t.key()
    terms = {**FAST, "recovery": {**LOOKUP, "not_found_after": "1s"}}
    before = t.gateway(old, top=UPSTREAM, idempotency=terms)
    after = t.gateway(new, top=UPSTREAM, idempotency=terms)

    def act(turn):
        book.commit(key)
        before.kill()
        return turn.reset()
    old.on(key, act)
    with suppress(Cut, OSError):
        before.post(key)
    not_freed(after, key, lambda key: book.executed(key) + other.executed(key))
