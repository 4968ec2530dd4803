"""By what an answer is judged beside its status, and what of it is given and kept (CONTRACT 5, 8)."""
import json

from harness import answer, roomy

BODY = b'{ "status" : "done","id":  "o1", "secret": {"card":"4111"},"items":[ {"sku":1,"p":2.50} ] }'


def test_a_field_of_the_answer_proves_that_nothing_was_done(t):
    upstream, gateway = t.both(**roomy(idempotency={"outcome": {"release_if": [
        {"status": 503, "header": "X-Not-Executed", "equals": "yes"},
        {"status": 500, "header": "X-Shed"}]}}))
    for fields, status, third in (
            ([("X-Not-Executed", "yes")], 503, 201), ([("X-Shed", "")], 500, 201),
            ([("X-Not-Executed", "no")], 503, 503), ([], 503, 503),
            ([("X-Not-Executed", "yes")], 500, 503),
            ([("X-Not-Executed", "yes"), ("X-Not-Executed", "yes")], 503, 503)):
        key = t.key()
        upstream.on(key, answer(status, b"{}", fields))
        assert gateway.post(key).status == status
        again = gateway.post(key)
        assert again.status == third, (fields, status, again)
        assert not again.replayed and upstream.count(key) == (2 if third == 201 else 1)


def test_what_the_body_says_decides_before_the_status(t):
    upstream, gateway = t.both(**roomy(idempotency={"outcome": {"when": [
        {"pointer": "/status", "equals": "pending", "list": "unknown"},
        {"pointer": "/error/code", "equals": 17, "list": "release"},
        {"pointer": "/done", "equals": True, "list": "store"},
        {"pointer": "/refused", "list": "release"}]}}))
    for status, body, seen in (
            (201, b'{"status": "pending"}', "unknown"), (201, b'{"status": "other"}', "stored"),
            (201, b'{"sta\\u0074us": "pendin\\u0067", "done": true}', "unknown"),
            (402, b'{"error": {"code": 1.7e1}}', "released"),
            (402, b'{"error": {"code": "17"}}', "stored"),
            (500, b'{"done": true}', "stored"), (500, b'{"done": 1}', "unknown"),
            (200, b'{"refused": {"why": 1}}', "released"), (200, b'{"refused": null}', "stored"),
            (201, b'{"status": "pending"', "stored"), (201, b"pending", "stored"),
            (201, b'{"status": "pending", "status": "pending"}', "stored")):
        key = t.key()
        upstream.on(key, answer(status, body))
        first, again = gateway.post(key), gateway.post(key)
        assert (first.status, first.body) == (status, body)
        found = "stored" if again.replayed else "unknown" if again.code else "released"
        assert found == seen, (status, body, again)


def test_what_was_too_large_to_be_looked_at_is_unknown_and_a_refusal_stays_one(t):
    small = {"limits": {"bytes_in_flight": "2MiB"}, "workers": 1}
    large = b'{"status": "pending", "a": "' + b"a" * 4_000_000 + b'"}'
    for terms, status, seen, later in (
            ({"outcome": {"when": [{"pointer": "/status", "equals": "pending", "list": "unknown"}]}},
             201, (503, "idempotency_result_unknown"), (503, "idempotency_result_unknown")),
            ({"response": {"fields": ["/id"]}}, 201, (410, "idempotency_result_not_retained"),
             (410, "idempotency_result_not_retained")),
            ({"response": {"fields": ["/id"]}}, 400, (400, None), (201, None))):
        upstream, gateway = t.both(**roomy(top=small, idempotency=terms))
        key = t.key()
        upstream.on(key, answer(status, large, [("ETag", '"e"'), ("X-Why", "size")]))
        first, again = gateway.post(key), gateway.post(key)
        assert (first.status, first.code) == seen and (again.status, again.code) == later, (first, again)
        if status == 400:
            assert first.body == b"" and first.field("X-Why") == "size" and not first.field("ETag")
        gateway.put_away()


def test_an_encoded_body_says_nothing(t):
    upstream, gateway = t.both(**roomy(idempotency={"outcome": {"when": [
        {"pointer": "/status", "equals": "pending", "list": "unknown"}]}}))
    key = t.key()
    upstream.on(key, answer(201, b'{"status":"pending"}', [("Content-Encoding", "x-own")]))
    gateway.post(key)
    again = gateway.post(key)
    assert again.replayed and again.field("Content-Encoding") == "x-own"
    assert upstream.of(key)[0].field("Accept-Encoding") == "identity"


def test_a_result_without_its_receipt_is_unknown(t):
    upstream, gateway = t.both(**roomy(idempotency={"response": {"receipt": "body:/id"},
                                                    "outcome": {"receipt_required": True}}))
    for status, body, stored in ((201, b'{"id":"o1"}', True), (201, b'{"id":7}', True),
                                 (201, b'{"id":""}', False), (201, b'{"id":null}', False),
                                 (201, b'{"id":["o1"]}', False), (201, b"o1", False),
                                 (204, b"", False), (402, b"{}", False)):
        key = t.key()
        upstream.on(key, answer(status, body))
        assert gateway.post(key).status == status
        again = gateway.post(key)
        assert again.replayed == stored, (body, again)
        assert stored or again.code == "idempotency_result_unknown"
    key = t.key()
    upstream.on(key, answer(400, b"{}"))
    gateway.post(key)
    assert gateway.post(key).status == 201, "what is released needs none"


def test_first_and_later_answers_have_only_the_fields_that_are_kept(t):
    upstream, gateway = t.both(**roomy(idempotency={"response": {
        "fields": ["/id", "/items/*/sku", "/nothing"]}}))
    key = t.key()
    upstream.on(key, answer(201, BODY, [("ETag", '"1"'), ("Content-Digest", "sha-256=:AA==:"),
                                        ("Location", "/v1/orders/o1")]))
    first, again = gateway.post(key), gateway.post(key)
    expected = b'{"id":  "o1","items":[{"sku":1}]}'
    assert first.body == again.body == expected, first.body
    for response in (first, again):
        assert response.field("Content-Type") == "application/json"
        assert response.field("Location") == "/v1/orders/o1"
        assert response.field("ETag") is None and response.field("Content-Digest") is None
    assert not stored_anywhere(t, "4111") and not stored_anywhere(t, "2.50")


def stored_anywhere(t, text):
    return t.rows("SELECT count(*) FROM onceward.event "
                  f"WHERE position('{text}'::bytea IN body) > 0")[0][0] != "0"


def test_what_is_not_stored_is_given_whole(t):
    upstream, gateway = t.both(**roomy(idempotency={"response": {"fields": ["/id"]}}))
    for status in (400, 500):
        key = t.key()
        upstream.on(key, answer(status, BODY))
        assert gateway.post(key).body == BODY


def test_a_body_in_which_no_fields_can_be_told_is_left_out(t):
    upstream, gateway = t.both(**roomy(idempotency={"response": {"fields": ["/id"]}}))
    for body, fields in ((b"<id>o1</id>", []), (b'{"id":1', []), (b'"id"', []),
                         (b'{"id":1}', [("Content-Encoding", "gzip")])):
        key = t.key()
        upstream.on(key, answer(201, body, fields))
        first, again = gateway.post(key), gateway.post(key)
        for response in (first, again):
            assert (response.status, response.body) == (201, b""), response
            assert response.field("Content-Encoding") is None
            assert response.field("Content-Type") is None
        assert again.replayed and upstream.count(key) == 1


def test_a_route_may_keep_no_bodies(t):
    upstream, gateway = t.both(**roomy(idempotency={"response": {"body": "omit"}}))
    key = t.key()
    upstream.on(key, answer(201, BODY, [("Location", "/v1/orders/o1"), ("ETag", '"1"')]))
    first, again = gateway.post(key), gateway.post(key)
    for response in (first, again):
        assert (response.status, response.body) == (201, b"")
        assert response.field("Content-Length") == "0" and response.field("Content-Type") is None
        assert response.field("Location") == "/v1/orders/o1" and response.field("ETag") is None
    assert again.replayed and not stored_anywhere(t, "o1")


def test_the_size_that_counts_is_that_of_what_is_kept(t):
    upstream, gateway = t.both(**roomy(idempotency={"response": {"fields": ["/id"], "max_body": "1KiB"}}))
    key = t.key()
    body = json.dumps({"id": "o1", "more": 5000 * "x"}).encode()
    upstream.on(key, answer(201, body))
    first, again = gateway.post(key), gateway.post(key)
    assert first.body == again.body == b'{"id": "o1"}' and again.replayed


def test_a_routes_own_fields_and_the_encoding_are_kept(t):
    upstream, gateway = t.both(**roomy(idempotency={"response": {"headers": ["X-Order-Version"]}}))
    key = t.key()
    upstream.on(key, answer(201, b"\x1f\x8bxyz", [("X-Order-Version", "7"), ("X-Other", "1"),
                                                  ("Content-Encoding", "gzip")]))
    first = gateway.post(key, fields=[("Accept-Encoding", "gzip, br")])
    again = gateway.post(key)
    assert first.field("X-Other") == "1" and again.field("X-Other") is None
    for response in (first, again):
        assert response.field("X-Order-Version") == "7" and response.body == b"\x1f\x8bxyz"
        assert response.field("Content-Encoding") == "gzip"
    assert upstream.of(key)[0].all("Accept-Encoding") == ["identity"]


def test_a_205_has_no_body_first_and_later(t):
    upstream, gateway = t.both(**roomy())
    key = t.key()
    upstream.on(key, answer(205, b"a body that has no place here"))
    first, again = gateway.post(key), gateway.post(key)
    assert (first.status, first.body) == (205, b"") == (again.status, again.body), (first, again)
    assert again.replayed and upstream.count(key) == 1
