"""What the gateway holds in memory is bounded (limits.bytes_in_flight), and is given back."""
import threading

from harness import Later, answer, raw, until

MIB = 1024 * 1024
TOO_MUCH = "the gateway holds too many bytes"


def small(t):
    """A pair whose gateway holds at most 2 MiB."""
    return t.both(top={"workers": 1, "limits": {"bytes_in_flight": "2MiB"}})


def chunked(size, status=201):
    head = f"HTTP/1.1 {status} Whatever\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    piece = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    return raw(head + piece * (size // 0x4000) + b"0\r\n\r\n", keep=True)


class Halfway:
    """An answer of which the rest comes when the test says so."""

    def __init__(self, size):
        self.size, self.begun, self.opened = size, threading.Event(), threading.Event()

    def __call__(self, turn):
        turn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nx" % self.size)
        self.begun.set()
        self.opened.wait(60)
        turn.send(b"x" * (self.size - 1))
        return True


def created(size, status=201):
    return answer(status, b"x" * size, [("Location", "/v1/orders/7")])


def fill(t, upstream, gateway, size):
    """Two readers that hold that much until they are opened, and what lets them end."""
    halves = [Halfway(size // 2), Halfway(size // 2)]
    upstream.on("/v1/orders", *halves)
    readers = [Later(lambda: gateway.request("GET", "/v1/orders")) for _ in halves]
    for half in halves:
        assert half.begun.wait(10)

    def end():
        for half in halves:
            half.opened.set()
        for reader in readers:
            assert len(reader.result().body) == size // 2
    return end


def test_an_executed_request_is_recorded_however_large_its_answer_is(t):
    upstream, gateway = small(t)
    for action, location in ((created(4 * MIB), "/v1/orders/7"), (chunked(4 * MIB), None)):
        key = t.key()
        upstream.on(key, action)
        for told in (gateway.post(key), gateway.post(key), gateway.post(key)):
            assert (told.status, told.code) == (410, "idempotency_result_not_retained"), told
            assert told.json()["may_have_executed"] is True
            assert told.json()["original_status"] == 201
            assert told.json().get("location") == location
        assert upstream.count(key) == 1
    for i in range(12):
        key = t.key()
        upstream.on(key, answer(201, b"x" * MIB) if i % 2 else chunked(MIB))
        assert len(gateway.post(key).body) == MIB, i


def test_a_large_answer_that_is_no_result_keeps_its_meaning(t):
    upstream, gateway = small(t)
    key = t.key()
    upstream.on(key, created(4 * MIB, 400), created(5))
    told = gateway.post(key)
    assert (told.status, told.code) == (410, "idempotency_result_not_retained"), told
    assert told.json()["may_have_executed"] is False
    assert told.json()["original_status"] == 400
    assert gateway.post(key).status == 201, "the key is free again"
    key = t.key()
    upstream.on(key, chunked(4 * MIB, 500))
    for _ in range(2):
        told = gateway.post(key)
        assert (told.status, told.code) == (503, "idempotency_result_unknown"), told
        assert told.json()["may_have_executed"] is True
    assert upstream.count(key) == 1


def test_what_would_be_stored_is_held_whatever_others_hold(t):
    upstream, gateway = small(t)
    end = fill(t, upstream, gateway, 2 * MIB - 64 * 1024)
    for action in (answer(201, b"y" * MIB), chunked(MIB)):
        key = t.key()
        upstream.on(key, action)
        first, again = gateway.post(key), gateway.post(key)
        assert first.status == 201 and len(first.body) == MIB, first
        assert again.replayed and again.body == first.body
        assert upstream.count(key) == 1
    key = t.key()
    upstream.on(key, created(MIB + 1))  # would not be stored
    assert gateway.post(key).json()["original_status"] == 201
    end()

    def whole():
        key = t.key()
        upstream.on(key, created(MIB + 1))
        first, again = gateway.post(key), gateway.post(key)
        assert again.status == 410, "more than is stored"
        return len(first.body) == MIB + 1
    until(whole, 5, "room for a large answer")


def test_what_passes_through_ends_where_it_is_too_much_to_hold(t):
    upstream, gateway = small(t)
    for action in (answer(200, b"x" * 4 * MIB), chunked(4 * MIB, 200)):
        upstream.on("/v1/orders", action)
        told = gateway.request("GET", "/v1/orders")
        assert (told.status, told.code) == (502, "upstream_bad_response"), told
    until(lambda: TOO_MUCH in gateway.log(), 5, "the cause in the log")
    for i in range(12):
        upstream.on("/v1/orders", answer(200, b"x" * MIB) if i % 2 else chunked(MIB, 200))
        whole = gateway.request("GET", "/v1/orders")
        assert whole.status == 200 and len(whole.body) == MIB, (i, whole.status)


def test_where_answers_fill_the_memory_enforced_requests_go_on(t):
    upstream, gateway = small(t)
    halves = [Halfway(900 * 1024), Halfway(900 * 1024)]
    upstream.on("/v1/orders", *halves, answer(200, b"x" * 900 * 1024))
    readers = [Later(lambda: gateway.request("GET", "/v1/orders")) for _ in halves]
    for half in halves:
        assert half.begun.wait(10)
    assert gateway.request("GET", "/v1/orders").status == 502, "a third one is too much"
    for _ in range(5):
        key = t.key()
        assert gateway.post(key).status == 201 and gateway.post(key).replayed
        assert upstream.count(key) == 1
    refused = gateway.post(t.key(), b'{"x":"' + b"y" * 900 * 1024 + b'"}')
    assert (refused.status, refused.code) == (503, "overloaded"), refused
    for half in halves:
        half.opened.set()
    for reader in readers:
        assert len(reader.result().body) == 900 * 1024
    upstream.on("/v1/orders", answer(200, b"x" * 900 * 1024))
    assert gateway.request("GET", "/v1/orders").status == 200, "what they held is free again"
