"""What an upstream's status means for the key (CONTRACT 5)."""
from harness import answer, roomy

STORED = (200, 201, 202, 204, 301, 302, 303, 402, 409, 410, 422)
RELEASED = (307, 308, 400, 401, 403, 404, 405, 407, 411, 412, 413, 414, 415, 417, 421, 423, 425,
            426, 428, 429, 431)
UNKNOWN = (300, 305, 406, 408, 416, 418, 500, 501, 502, 503, 504, 599)


def test_results_are_stored_and_replayed(t):
    upstream, gateway = t.both(**roomy())
    for status in STORED:
        key = t.key()
        upstream.on(key, answer(status))
        first, again = gateway.post(key), gateway.post(key)
        assert first.status == again.status == status, status
        assert again.replayed and again.body == first.body and upstream.count(key) == 1, status


def test_a_refusal_frees_the_key_also_for_another_content(t):
    upstream, gateway = t.both(**roomy())
    for status in RELEASED:
        key = t.key()
        upstream.on(key, answer(status, b'{"error":"fix it"}'), answer(201, b'{"fixed":1}'))
        first = gateway.post(key, b'{"amount":-1}')
        assert (first.status, first.body) == (status, b'{"error":"fix it"}'), status
        again = gateway.post(key, b'{"amount":1}')
        assert (again.status, again.body) == (201, b'{"fixed":1}') and not again.replayed, status
        assert again.request_id != first.request_id, "a release ends the logical request"
        assert upstream.count(key) == 2, status


def test_what_may_have_had_an_effect_is_passed_on_and_held(t):
    upstream, gateway = t.both(**roomy())
    for status in UNKNOWN:
        key = t.key()
        upstream.on(key, answer(status, b'{"error":"who knows"}'))
        first, again = gateway.post(key), gateway.post(key)
        assert (first.status, first.body) == (status, b'{"error":"who knows"}'), status
        assert (again.status, again.code) == (503, "idempotency_result_unknown"), (status, again)
        assert again.json()["may_have_executed"] is True and again.json()["retry"] == "same_key"
        assert int(again.field("Retry-After")) >= 1
        assert again.request_id == first.request_id
        assert upstream.count(key) == 1, status


def test_an_unknown_key_with_another_content_is_a_mismatch(t):
    upstream, gateway = t.both(**roomy())
    key = t.key()
    upstream.on(key, answer(500))
    gateway.post(key, b'{"a":1}')
    other = gateway.post(key, b'{"a":2}')
    assert (other.status, other.code) == (409, "idempotency_payload_mismatch")


def test_a_written_list_replaces_its_own_default_and_takes_from_the_others(t):
    upstream, gateway = t.both(**roomy(idempotency={"outcome": {"store": ["2xx", "402", "404"]}}))
    for status, third in ((402, "stored"), (404, "stored"), (409, "unknown"), (303, "unknown"),
                          (400, "released"), (500, "unknown")):
        key = t.key()
        upstream.on(key, answer(status))
        gateway.post(key)
        again = gateway.post(key)
        seen = "stored" if again.replayed else "unknown" if again.code else "released"
        assert seen == third, (status, again)


def test_everything_may_be_stored(t):
    upstream, gateway = t.both(**roomy(idempotency={"outcome": {"store": ["2xx", "4xx", "5xx"]}}))
    for status in (400, 404, 429, 500, 503):
        key = t.key()
        upstream.on(key, answer(status, b"{}"))
        assert gateway.post(key).status == status
        again = gateway.post(key)
        assert again.status == status and again.replayed and upstream.count(key) == 1


def test_the_status_of_unknown_is_the_routes(t):
    upstream, gateway = t.both(**roomy(idempotency={"unknown_status": 409,
                                                    "owner": "orders@example.com"}))
    key = t.key()
    upstream.on(key, answer(500))
    gateway.post(key)
    again = gateway.post(key)
    assert (again.status, again.code) == (409, "idempotency_result_unknown")
    assert again.json()["owner"] == "orders@example.com"


def test_an_unknown_record_stands_on_the_attention_list(t):
    upstream, gateway = t.both(**roomy())
    key = t.key()
    upstream.on(key, answer(500))
    gateway.post(key)
    rows = t.rows("SELECT state, convert_from(operation, 'UTF8'), convert_from(key, 'UTF8') "
                  "FROM onceward.attention")
    assert rows == [["3", "orders.create", key]], rows


def test_a_redirect_is_passed_on_and_not_followed(t):
    upstream, gateway = t.both(**roomy())
    key = t.key()
    upstream.on(key, answer(302, b"", [("Location", "/v1/elsewhere")]))
    first = gateway.post(key)
    assert first.status == 302 and first.field("Location") == "/v1/elsewhere"
    assert len(upstream.arrivals) == 1
