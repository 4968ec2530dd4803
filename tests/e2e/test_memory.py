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
    return raw(head + piece * (size // 0x4000) + b"0\r\n\r\n")


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


def test_an_answer_that_is_too_much_to_hold_is_unknown_and_gives_back_all(t):
    upstream, gateway = small(t)
    for action in (answer(201, b"x" * 4 * MIB), chunked(4 * MIB)):
        key = t.key()
        upstream.on(key, action)
        first, again = gateway.post(key), gateway.post(key)
        assert (first.status, first.code) == (502, "idempotency_result_unknown"), first
        assert (again.status, again.code) == (503, "idempotency_result_unknown"), again
        assert upstream.count(key) == 1
    upstream.on("/v1/orders", answer(200, b"x" * 4 * MIB))
    assert gateway.request("GET", "/v1/orders").status == 502
    until(lambda: TOO_MUCH in gateway.log(), 5, "the cause in the log")
    for i in range(12):
        upstream.on("/v1/orders", answer(200, b"x" * MIB) if i % 2 else chunked(MIB, 200))
        whole = gateway.request("GET", "/v1/orders")
        assert whole.status == 200 and len(whole.body) == MIB, (i, whole.status)
        key = t.key()
        upstream.on(key, answer(201, b"x" * MIB))
        assert len(gateway.post(key).body) == MIB, i


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
    for half, reader in zip(halves, readers):
        half.opened.set()
        assert len(reader.result().body) == 900 * 1024
    upstream.on("/v1/orders", answer(200, b"x" * 900 * 1024))
    assert gateway.request("GET", "/v1/orders").status == 200, "what they held is free again"
