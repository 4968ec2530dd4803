"""The first answer is stored, and given again byte for byte (CONTRACT 3, 8)."""
import email.utils
import time

from harness import SLOW, answer, roomy, tag, together

DATE = email.utils.parsedate_to_datetime


@tag("threads")
def test_200_simultaneous_replays_are_200_equal_answers(t):
    upstream, gateway = t.both(**roomy())
    key, body = t.key(), bytes(range(256)) * 20
    upstream.on(key, answer(201, body, [("Location", "/v1/orders/7"), ("ETag", '"a"')],
                            content_type="application/octet-stream"))
    first = gateway.post(key)
    assert (first.status, first.body) == (201, body) and not first.replayed
    replays = [r for _ in range(4) for r in together([lambda: gateway.post(key)] * 50)]
    for replay in replays:
        assert (replay.status, replay.body) == (201, body) and replay.replayed, replay
        for name in ("Content-Type", "Location", "ETag", "Idempotency-Request-Id"):
            assert replay.field(name) == first.field(name), name
    assert len(replays) == 200 and upstream.count(key) == 1


def test_enforced_answers_say_which_request_they_belong_to(t):
    upstream, gateway = t.both(idempotency={"retention": "1h"})
    key = t.key()
    before = int(time.time())
    first, replay = gateway.post(key), gateway.post(key)
    assert first.request_id.startswith("req_") and replay.request_id == first.request_id
    assert first.field("Idempotent-Replayed") is None and replay.replayed
    assert replay.field("Idempotency-Expires") == first.field("Idempotency-Expires")
    assert abs(DATE(replay.field("Idempotency-First-Seen")).timestamp() - before) < 30
    expires = DATE(first.field("Idempotency-Expires")).timestamp()
    assert abs(expires - before - 3600) < 60, first
    other = gateway.post(t.key())
    assert other.request_id != first.request_id
    assert upstream.count(key) == 1


def test_the_request_id_tells_nothing_of_the_key(t):
    _, gateway = t.both()
    ids = [gateway.post(f"same-{i}-{t.key()}").request_id for i in range(5)]
    assert len({i[4:12] for i in ids}) == 5, "ids of neighbours look alike"


def test_what_belongs_to_one_answer_only_is_never_replayed(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, answer(201, b"{}", [
        ("Set-Cookie", "session=secret"), ("WWW-Authenticate", "Basic"), ("X-Other", "1"),
        ("Date", "Mon, 01 Jan 2001 00:00:00 GMT"), ("Link", "</v1/orders/7>; rel=self")]))
    first, replay = gateway.post(key), gateway.post(key)
    assert first.field("Set-Cookie") == "session=secret" and first.field("X-Other") == "1"
    for name in ("Set-Cookie", "WWW-Authenticate", "X-Other"):
        assert replay.field(name) is None, name
    assert replay.field("Link") == "</v1/orders/7>; rel=self"
    assert "2001" not in replay.field("Date")
    assert replay.field("Cache-Control") == "no-store", "nothing was stored, so replays say it"


def test_fields_that_the_route_names_are_kept(t):
    upstream, gateway = t.both(idempotency={"response": {"headers": ["X-Order-Version"]}})
    key = t.key()
    upstream.on(key, answer(201, b"{}", [("X-Order-Version", "7"), ("Cache-Control", "private")]))
    gateway.post(key)
    replay = gateway.post(key)
    assert replay.field("x-order-version") == "7" and replay.field("Cache-Control") == "private"


def test_an_answer_without_content_is_replayed_without_content(t):
    upstream, gateway = t.both()
    key, empty = t.key(), t.key()
    upstream.on(key, answer(204))
    upstream.on(empty, answer(201, b""))
    for response in (gateway.post(key), gateway.post(key)):
        assert response.status == 204 and response.body == b""
        assert response.field("Content-Length") is None
    for response in (gateway.post(empty), gateway.post(empty)):
        assert response.status == 201 and response.field("Content-Length") == "0"
    assert upstream.count(key) == upstream.count(empty) == 1


def test_locations_that_name_the_upstream_become_relative(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, answer(201, b"{}", [
        ("Location", f"http://127.0.0.1:{upstream.port}/v1/orders/7?x=1"),
        ("Link", f"<http://127.0.0.1:{upstream.port}/v1/orders/8>; rel=next, "
                 "<http://elsewhere.example/v1>; rel=help")]))
    for response in (gateway.post(key), gateway.post(key)):
        assert response.field("Location") == "/v1/orders/7?x=1", response
        assert response.field("Link") == \
            "</v1/orders/8>; rel=next, <http://elsewhere.example/v1>; rel=help", response


def test_another_content_under_the_same_key_is_refused(t):
    upstream, gateway = t.both()
    key = t.key()
    first = gateway.post(key, b'{"amount":1}')
    other = gateway.post(key, b'{"amount":2}')
    assert (other.status, other.code) == (409, "idempotency_payload_mismatch")
    problem = other.json()
    assert problem["retry"] == "after_fix" and problem["may_have_executed"] is True
    assert problem["type"] == "urn:onceward:problem:idempotency_payload_mismatch"
    assert problem["status"] == 409 and problem["title"] and problem["first_seen_at"]
    assert other.field("Cache-Control") == "no-store"
    assert other.field("Idempotency-Verdict") == "idempotency_payload_mismatch"
    assert b"order-1" not in other.body, "stored content leaks"
    again = gateway.post(key, b'{"amount":1}')
    assert again.replayed and again.body == first.body and upstream.count(key) == 1


def test_the_status_of_a_mismatch_is_the_routes(t):
    _, gateway = t.both(idempotency={"mismatch_status": 422})
    key = t.key()
    gateway.post(key, b'{"amount":1}')
    assert gateway.post(key, b'{"amount":2}').status == 422


def test_json_is_compared_by_meaning(t):
    upstream, gateway = t.both()
    key = t.key()
    gateway.post(key, b'{"a":1,"b":[1.50,"\\u0041"],"c":-0}')
    for same in (b'{"b":[15e-1,"A"],"c":0,"a":1.0}', b' { "c" : 0.0,\n"a":1e0, "b":[1.5,"A"] } '):
        assert gateway.post(key, same).replayed, same
    for other in (b'{"a":1,"b":["A",1.5],"c":0}', b'{"a":"1","b":[1.5,"A"],"c":0}',
                  b'{"a":1,"b":[1.5,"A"],"c":0,"d":null}'):
        assert gateway.post(key, other).status == 409, other
    assert upstream.count(key) == 1


def test_large_numbers_are_not_rounded(t):
    _, gateway = t.both()
    key = t.key()
    gateway.post(key, b'{"id":9007199254740992}')
    assert gateway.post(key, b'{"id":9007199254740993}').status == 409


def test_other_bodies_are_compared_byte_for_byte(t):
    upstream, gateway = t.both()
    key, text = t.key(), [("Content-Type", "text/plain")]
    gateway.post(key, b'{"a":1,"b":2}', text)
    assert gateway.post(key, b'{"a":1,"b":2}', text).replayed
    assert gateway.post(key, b'{"b":2,"a":1}', text).status == 409
    assert upstream.count(key) == 1


def test_query_and_path_are_part_of_the_request(t):
    upstream, gateway = t.both()
    key = t.key()
    gateway.post(key, target="/v1/orders?a=1&b=2")
    assert gateway.post(key, target="/v1/orders?b=2&a=1").replayed
    assert gateway.post(key, target="/v1/orders?a=2&b=2").status == 409
    assert gateway.post(key, target="/v1/%6Frders?a=1&b=2").replayed, "the same path, escaped"
    assert upstream.count(key) == 1


def test_the_received_bytes_are_forwarded(t):
    upstream, gateway = t.both()
    key, body = t.key(), b' { "b" : 1.0 ,"a":"\\u0041" } '
    gateway.post(key, body, target="/v1/%6Frders?b=%7e&a=+")
    arrival, = upstream.of(key)
    assert arrival.target == "/v1/%6Frders?b=%7e&a=+" and arrival.body == body
    assert arrival.field("Idempotency-Key") == key


def test_two_keys_with_one_content_are_two_operations(t):
    upstream, gateway = t.both()
    one, two = gateway.post(t.key()), gateway.post(t.key())
    assert one.body != two.body and len(upstream.arrivals) == 2


def test_one_key_on_two_operations_is_two_records(t):
    upstream, gateway = t.both()
    key = t.key()
    assert gateway.post(key).status == 201
    fields = [("Content-Type", "application/json"), ("Idempotency-Key", key)]
    changed = gateway.request("PATCH", "/v1/orders/7", fields, b"{}")
    assert changed.status == 201 and not changed.replayed and upstream.count(key) == 2


def test_an_answer_too_large_to_keep_is_passed_on_and_never_executed_again(t):
    upstream, gateway = t.both(idempotency={"response": {"max_body": "1KiB"}})
    key = t.key()
    upstream.on(key, answer(201, b"x" * 5000, [("Location", "/v1/orders/7")]))
    first, again = gateway.post(key), gateway.post(key)
    assert (first.status, len(first.body)) == (201, 5000)
    assert (again.status, again.code) == (410, "idempotency_result_not_retained")
    assert again.json()["original_status"] == 201 and upstream.count(key) == 1


def test_a_key_outlives_its_response(t):
    upstream, gateway = t.both(idempotency={"retention": "1s", "tombstone": "1h"})
    key = t.key()
    assert gateway.post(key).status == 201
    time.sleep(1.3)
    late = gateway.post(key)
    assert (late.status, late.code) == (410, "idempotency_result_not_retained")
    assert late.json()["may_have_executed"] is True and upstream.count(key) == 1
    assert gateway.post(key, b'{"other":1}').status == 409


def test_replays_survive_a_restart(t):
    upstream, gateway = t.both()
    key = t.key()
    first = gateway.post(key)
    gateway.term()
    assert gateway.process.wait(20 * SLOW) == 0
    gateway.start()
    again = gateway.post(key)
    assert again.replayed and again.body == first.body and upstream.count(key) == 1
    assert again.request_id == first.request_id


def test_the_upstream_cannot_forge_the_gateways_words(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, answer(201, b"{}", [("Idempotent-Replayed", "true"),
                                         ("Idempotency-Request-Id", "req_forged")]))
    first = gateway.post(key)
    assert not first.replayed and first.request_id != "req_forged"
