"""What the gateway holds in memory is bounded (limits.bytes_in_flight), and is given back."""
import threading

from harness import SLOW, Later, answer, raw, unhurried, until

MIB = 1024 * 1024


def small(t):
    """A pair whose gateway holds at most 2 MiB."""
    return t.both(**unhurried({"workers": 1, "limits": {"bytes_in_flight": "2MiB"}}))


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
    """Two answers that hold that much until they are opened, and what lets them end."""
    halves = [Halfway(size // 2), Halfway(size // 2)]
    readers = []
    for half in halves:
        key = t.key()
        upstream.on(key, half)
        readers.append(Later(lambda key=key: gateway.post(key)))
        assert half.begun.wait(20 * SLOW)

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
        first = gateway.post(key)
        assert first.status == 201 and first.body == b"x" * 4 * MIB
        for told in (gateway.post(key), gateway.post(key)):
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
    refused = gateway.post(key)
    assert refused.status == 400 and len(refused.body) == 4 * MIB
    assert gateway.post(key).status == 201, "the key is free again"
    key = t.key()
    upstream.on(key, chunked(4 * MIB, 500))
    assert gateway.post(key).status == 500
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
    first, again = gateway.post(key), gateway.post(key)
    assert len(first.body) == MIB + 1 and again.json()["original_status"] == 201
    end()


def test_where_answers_fill_the_memory_enforced_requests_go_on(t):
    upstream, gateway = small(t)
    end = fill(t, upstream, gateway, 1800 * 1024)
    upstream.on("/v1/orders", answer(200, b"x" * 4 * MIB), raw(b"HTTP/1.1 200 OK\r\n\r\n" + b"y" * MIB))
    assert len(gateway.request("GET", "/v1/orders").body) == 4 * MIB, "what passes needs no room"
    assert len(gateway.request("GET", "/v1/orders").body) == MIB
    for _ in range(5):
        key = t.key()
        assert gateway.post(key).status == 201 and gateway.post(key).replayed
        assert upstream.count(key) == 1
    refused = gateway.post(t.key(), b'{"x":"' + b"y" * 900 * 1024 + b'"}')
    assert (refused.status, refused.code) == (503, "overloaded"), refused
    end()
    # What a request held is given back behind its answer.
    until(lambda: gateway.post(t.key(), b'{"x":"' + b"y" * 900 * 1024 + b'"}').status == 201,
          what="its being free again")
