"""Where keys come from, and as what they go on (CONTRACT 2.3)."""
import gzip
import json

from harness import merged, request, together

HOOK = {"key": {"from": ["body:/id"]}, "request": {"ignore": ["/attempt"]}}
BOTH = {"key": {"from": ["header:X-Webhook-Id", "body:/event/id"], "required": False},
        "request": {"only": ["/event"]}}
JSON = [("Content-Type", "application/json")]


def send(gateway, body, fields=()):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(gateway.port, "POST", "/v1/orders", JSON + list(fields), data)


def test_two_events_with_one_id_are_one_operation(t):
    upstream, gateway = t.both(idempotency=HOOK)
    first = send(gateway, {"id": "evt_1", "attempt": 1, "data": {"a": 1}})
    again = send(gateway, {"attempt": 2, "data": {"a": 1.0}, "id": "evt_1"})
    assert first.status == again.status == 201 and again.body == first.body
    assert again.replayed and not first.replayed and len(upstream.arrivals) == 1
    other = send(gateway, {"id": "evt_2", "attempt": 1, "data": {"a": 1}})
    assert not other.replayed and len(upstream.arrivals) == 2


def test_one_event_that_comes_twice_at_once_is_handled_once(t):
    upstream, gateway = t.both(idempotency=merged(HOOK, {"wait": "20s"}))
    event = {"id": "evt_1", "attempt": 1}
    answers = together([lambda: send(gateway, event) for _ in range(10)])
    assert {(a.status, a.body) for a in answers} == {(201, answers[0].body)}
    assert len(upstream.arrivals) == 1


def test_one_id_with_another_content_is_a_mismatch(t):
    _, gateway = t.both(idempotency=HOOK)
    send(gateway, {"id": "evt_1", "data": 1})
    other = send(gateway, {"id": "evt_1", "data": 2})
    assert (other.status, other.code) == (409, "idempotency_payload_mismatch")


def test_an_integer_is_a_key_by_its_digits(t):
    upstream, gateway = t.both(idempotency=HOOK)
    first = send(gateway, b'{"id": 9007199254740993}')
    assert not send(gateway, b'{"id": 9007199254740992}').replayed
    again = send(gateway, b'{"id":9007199254740993.0}')
    assert again.replayed and again.body == first.body
    keys = t.rows("SELECT convert_from(key, 'UTF8') FROM onceward.op ORDER BY 1")
    assert keys == [["9007199254740992"], ["9007199254740993"]], keys
    assert len(upstream.arrivals) == 2


def test_what_is_no_key_in_a_body_is_refused(t):
    upstream, gateway = t.both(idempotency=HOOK)
    for value in ("1.5", "true", "null", "[]", "{}", '""', '"a b"', '"a,b"', '"' + 256 * "x" + '"',
                  "1e300"):
        refused = send(gateway, b'{"id": %s}' % value.encode())
        assert (refused.status, refused.code) == (400, "idempotency_key_invalid"), (value, refused)
    for body in (b'{"data": 1}', b'[{"id": "evt_1"}]', b"3", b""):
        missing = send(gateway, body)
        assert (missing.status, missing.code) == (400, "idempotency_key_missing"), (body, missing)
    cut = send(gateway, b'{"id": "evt_1"')
    assert (cut.status, cut.code) == (400, "request_body_invalid")
    assert not upstream.arrivals
    assert t.rows("SELECT count(*) FROM onceward.op") == [["0"]]


def test_a_body_that_is_not_json_holds_no_key(t):
    upstream, gateway = t.both(idempotency=HOOK)
    refused = request(gateway.port, "POST", "/v1/orders",
                      [("Content-Type", "text/plain")], b'{"id":"evt_1"}')
    assert (refused.status, refused.code) == (400, "idempotency_key_missing")
    assert not upstream.arrivals


def test_all_sources_that_are_there_must_agree(t):
    upstream, gateway = t.both(idempotency=BOTH)
    event = {"event": {"id": "e1"}, "sent": 1}
    first = send(gateway, event, [("X-Webhook-Id", "e1")])
    assert first.status == 201
    for again in (send(gateway, event), send(gateway, event, [("x-webhook-id", '"e1"')])):
        assert again.replayed and again.body == first.body
    for fields in ([("X-Webhook-Id", "e2")], [("X-Webhook-Id", "e1"), ("X-Webhook-Id", "e1")],
                   [("X-Webhook-Id", "")]):
        refused = send(gateway, event, fields)
        assert (refused.status, refused.code) == (400, "idempotency_key_invalid"), refused
        assert refused.json()["may_have_executed"] in (True, False)
    assert len(upstream.arrivals) == 1


def test_a_key_in_one_source_is_enough(t):
    upstream, gateway = t.both(idempotency=BOTH)
    body = {"event": {"kind": "ping"}}
    first = send(gateway, body, [("X-Webhook-Id", "e1")])
    again = send(gateway, body, [("X-Webhook-Id", "e1")])
    assert again.replayed and again.body == first.body and len(upstream.arrivals) == 1


def test_without_a_key_that_is_optional_it_passes(t):
    upstream, gateway = t.both(idempotency=BOTH)
    body = {"event": {"kind": "ping"}}
    first, again = send(gateway, body), send(gateway, body)
    assert first.status == again.status == 201 and first.body != again.body
    assert first.request_id is None and len(upstream.arrivals) == 2
    assert upstream.arrivals[0].body == json.dumps(body).encode()
    assert t.rows("SELECT count(*) FROM onceward.op") == [["0"]]
    gateway.until_metric(0, "in_flight")


def test_the_account_is_asked_before_the_body_is_looked_at(t):
    upstream, gateway = t.both(idempotency={**BOTH, "account": "behind"})
    refused = send(gateway, b'{"event": {}')
    assert refused.status == 401 and not upstream.arrivals


def test_a_route_may_take_its_key_from_another_field(t):
    upstream, gateway = t.both(idempotency={"key": {"from": ["header:X-Request-Key"]}})
    first = send(gateway, {"a": 1}, [("X-Request-Key", "k1")])
    assert send(gateway, {"a": 1}, [("x-request-key", "k1")]).replayed
    missing = send(gateway, {"a": 1}, [("Idempotency-Key", "k1")])
    assert first.status == 201 and missing.code == "idempotency_key_missing"
    assert upstream.arrivals[0].field("X-Request-Key") == "k1"
    assert len(upstream.arrivals) == 1


def test_a_field_with_the_key_may_not_be_declared_hop_by_hop(t):
    upstream, gateway = t.both(idempotency={"key": {"from": ["header:X-Request-Key"]}})
    refused = send(gateway, {"a": 1}, [("X-Request-Key", "k1"), ("Connection", "close, x-request-key")])
    assert (refused.status, refused.code) == (400, "request_malformed"), refused
    assert not upstream.arrivals, "the upstream would not see the key"


def test_what_the_upstream_gets_as_the_key_is_the_routes(t):
    cases = (
        ("client", {"X-Request-Key": '"k1"', "Idempotency-Key": "other"}),
        ("none", {"X-Request-Key": None, "Idempotency-Key": "other"}),
        ("header:X-Ref", {"X-Request-Key": None, "Idempotency-Key": "other", "X-Ref": '"k1"'}),
        ("header:Idempotency-Key", {"X-Request-Key": None, "Idempotency-Key": '"k1"'}))
    routes = [{"match": f"POST /{i}", "upstream": "orders",
               "idempotency": {"operation": f"op{i}", "account": "public", "lease": "5s",
                               "key": {"from": ["header:X-Request-Key"], "forward": how}}}
              for i, (how, _) in enumerate(cases)]
    upstream, gateway = t.both(routes=routes)
    for i, (how, expected) in enumerate(cases):
        fields = [("X-Request-Key", '"k1"'), ("Idempotency-Key", "other"), ("X-Ref", "mine")]
        assert gateway.request("POST", f"/{i}", fields, b"{}").status == 201
        expected = {"X-Ref": "mine", **expected}
        for name, value in expected.items():
            arrived = upstream.arrivals[-1].all(name)
            assert arrived == ([value] if value else []), (how, name, arrived)


def test_a_key_from_the_body_can_become_a_field(t):
    upstream, gateway = t.both(idempotency={
        "key": {"from": ["body:/id"], "forward": "header:Idempotency-Key"},
        "request": {"ignore": ["/attempt"]}})
    send(gateway, {"id": "evt_1"})
    assert upstream.arrivals[0].field("Idempotency-Key") == "evt_1"


def test_a_packed_body_is_unpacked_for_its_key(t):
    upstream, gateway = t.both(idempotency=HOOK)
    first = send(gateway, {"id": "evt_1", "data": 1})
    packed = [("Content-Encoding", "gzip")]
    again = send(gateway, gzip.compress(b'{"data": 1, "id": "evt_1"}'), packed)
    assert again.replayed and again.body == first.body
    other = send(gateway, gzip.compress(b'{"data": 2, "id": "evt_1"}'), packed)
    assert other.code == "idempotency_payload_mismatch", other
    assert len(upstream.arrivals) == 1


def test_a_derived_key_is_one_for_each_account_operation_and_key(t):
    derived = {"key": {"forward": "derived"}, "account": "behind"}
    upstream, gateway = t.both(idempotency=derived)
    sent = []
    for account, key, target in (("a", "k1", "/v1/orders"), ("b", "k1", "/v1/orders"),
                                 ("a", "k2", "/v1/orders")):
        gateway.post(key, fields=[("X-Account", account)], target=target)
        sent.append(upstream.arrivals[-1].all("Idempotency-Key"))
    gateway.request("PUT", "/v1/orders/1", [("X-Account", "a"), ("Idempotency-Key", "k1")], b"")
    sent.append(upstream.arrivals[-1].all("Idempotency-Key"))
    assert all(len(values) == 1 and len(values[0]) >= 16 for values in sent), sent
    assert len({values[0] for values in sent}) == 4, sent
    assert not any("k1" in values[0] or "k2" in values[0] for values in sent)
