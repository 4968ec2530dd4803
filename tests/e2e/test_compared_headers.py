"""Header fields that say what a request is (CONTRACT 4)."""

JSON = ("Content-Type", "application/json")


def test_connection_may_not_take_a_field_away_that_is_compared(t):
    upstream, gateway = t.both(idempotency={"request": {"headers": ["API-Version"]}})
    for value in ("api-version", "close, Api-Version", "keep-alive,API-VERSION , x"):
        answer = gateway.post(t.key(), b"{}", [JSON, ("API-Version", "2"), ("Connection", value)])
        assert (answer.status, answer.code) == (400, "request_malformed"), (value, answer)
    assert not upstream.arrivals and t.records() == 0
    key = t.key()
    answer = gateway.post(key, b"{}", [JSON, ("API-Version", "2"), ("Connection", "X-Other")])
    assert answer.status == 201
    assert upstream.of(key)[0].field("API-Version") == "2"


def test_an_absent_header_is_not_an_empty_one(t):
    _, gateway = t.both(idempotency={"request": {"headers": ["API-Version"]}})
    key = t.key()
    assert gateway.post(key, b"{}", [JSON]).status == 201
    assert gateway.post(key, b"{}", [JSON]).replayed
    for value in ("", "1"):
        answer = gateway.post(key, b"{}", [JSON, ("API-Version", value)])
        assert answer.code == "idempotency_payload_mismatch", (value, answer)
