"""What is not well-formed is refused with a sentence, before anything is reserved (CONTRACT 2, 10)."""
import contextlib
import socket
import time

from harness import Connection, Cut, tag, until

KEY = b"Idempotency-Key: k-malformed\r\n"
HEAD = b"POST /v1/orders HTTP/1.1\r\nHost: a\r\n" + KEY


def statuses(gateway, data, timeout=8):
    """What comes back for these bytes on a connection of their own, until it is closed."""
    found = []
    with Connection(gateway.port, timeout) as connection:
        try:
            connection.send(data)
            connection.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            while True:
                found.append(connection.response().status)
        except (Cut, IndexError, ValueError):
            return found


REFUSED = {
    "both framings": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "two equal lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\n{}",
    "a signed length": HEAD + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n{}",
    "a hexadecimal length": HEAD + b"Content-Length: 0x2\r\n\r\n{}",
    "an empty length": HEAD + b"Content-Length:\r\n\r\n{}",
    "a length beyond all numbers": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two codings": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "identity": HEAD + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
    "two coding lines": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": HEAD + b"Content-Length : 2\r\n\r\n{}",
    "a chunk of no number": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "no host": b"POST /v1/orders HTTP/1.1\r\n" + KEY + b"Content-Length: 2\r\n\r\n{}",
    "two hosts": b"POST /v1/orders HTTP/1.1\r\nHost: a\r\nHost: b\r\n" + KEY + b"Content-Length: 2\r\n\r\n{}",
    "an invalid host": b"POST /v1/orders HTTP/1.1\r\nHost: a b\r\n" + KEY + b"Content-Length: 2\r\n\r\n{}",
    "a host with a path": b"POST /v1/orders HTTP/1.1\r\nHost: a/b\r\n" + KEY + b"Content-Length: 2\r\n\r\n{}",
    "a control byte in a value": HEAD + b"X-A: b\x01c\r\nContent-Length: 2\r\n\r\n{}",
    "a name that is no token": HEAD + b"X(A): b\r\nContent-Length: 2\r\n\r\n{}",
    "a connection field that names the key": HEAD + b"Connection: idempotency-key\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/2.0": HEAD.replace(b"1.1", b"2.0") + b"Content-Length: 2\r\n\r\n{}",
    "no protocol": b"POST /v1/orders\r\n\r\n",
    "not HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@tag("threads")
def test_ambiguous_framing_is_refused_and_closes(t):
    upstream, gateway = t.both(top={"header_timeout": "2s", "body_timeout": "2s"})
    smuggled = b"GET /plain/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    for name, data in REFUSED.items():
        found = statuses(gateway, data + smuggled)
        print(name, found)
        assert len(found) <= 2 and all(400 <= s < 600 and s not in (500, 502, 504) for s in found), \
            (name, found)
    assert not upstream.arrivals, [a.head for a in upstream.arrivals]
    assert t.records() == 0
    assert gateway.post(t.key()).status == 201, "and it lives"


def test_paths_that_can_be_read_in_two_ways_are_refused(t):
    upstream, gateway = t.both()
    for path in ("/v1//orders", "//v1/orders", "/v1/./orders", "/v1/x/../orders", "/v1/%2e%2e/orders",
                 "/v1/%2E/orders", "/v1%2forders", "/v1%5corders", "/v1/orders%00", "/plain/%2F",
                 "/v1/orders/%zz", "/v1/orders/%a"):
        response = gateway.post(t.key(), target=path)
        assert (response.status, response.code) == (400, "request_malformed"), (path, response)
    assert not upstream.arrivals and t.records() == 0


def test_loose_paths_admit_what_the_route_says(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, routes=[
        {"match": "* /*", "upstream": "orders", "loose_paths": True}])
    for path in ("/a//b", "/a/../b", "/a%2fb"):
        assert gateway.request("GET", path).status == 201, path
    assert [a.target for a in upstream.arrivals] == ["/a//b", "/a/../b", "/a%2fb"]


def test_an_unknown_path_is_404(t):
    upstream, gateway = t.both()
    for target in ("/", "/v1", "/v1/orders/", "/v1/ordersx", "/V1/orders", "/v1/orders/7/x"):
        response = gateway.post(t.key(), target=target)
        assert (response.status, response.code) == (404, "route_not_found"), (target, response)
    assert not upstream.arrivals


def test_a_known_path_under_another_method_is_405_with_allow(t):
    upstream, gateway = t.both()
    response = gateway.request("DELETE", "/v1/orders")
    assert (response.status, response.code) == (405, "method_not_allowed")
    assert {m.strip() for m in response.field("Allow").split(",")} == {"POST", "GET"}
    response = gateway.request("POST", "/v1/orders/7", [("Idempotency-Key", "k")], b"")
    assert response.status == 405
    assert {m.strip() for m in response.field("Allow").split(",")} == {"PATCH", "PUT", "DELETE"}
    assert not upstream.arrivals


def test_a_body_that_is_too_large_is_413_and_leaves_nothing(t):
    upstream, gateway = t.both(idempotency={"request": {"max_body": "1KiB"}})
    assert gateway.post(t.key(), b"x" * 1024, [("Content-Type", "text/plain")]).status == 201
    big = gateway.post(t.key(), b"x" * 1025)
    assert (big.status, big.code) == (413, "request_body_too_large"), big
    assert big.json()["may_have_executed"] is True, "a valid key, and the ledger was not asked"
    chunked = (b"POST /v1/orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: c\r\n"
               b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n" +
               b"10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n")
    with Connection(gateway.port) as connection:
        connection.send(chunked)
        assert connection.response().status == 413
    huge = gateway.post(t.key(), b"x" * 900_000)
    assert huge.status == 413
    assert len(upstream.arrivals) == 1 and t.records() == 1


def test_a_body_announced_larger_than_anything_is_413(t):
    upstream, gateway = t.both()
    with Connection(gateway.port, 10) as connection:
        connection.send(b"POST /v1/orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: c\r\n"
                        b"Content-Length: 9223372036854775807\r\n\r\nx")
        assert connection.response().status in (400, 413)
    assert not upstream.arrivals


def test_a_head_that_is_too_large_is_refused(t):
    upstream, gateway = t.both()
    for fields in ([("X-A", "x" * 20000)], [("X-A", "x")] * 150, [("X-" + "a" * 17000, "x")]):
        with Connection(gateway.port, 10) as connection:
            head = "".join(f"{n}: {v}\r\n" for n, v in fields).encode()
            connection.send(HEAD + head + b"Content-Length: 2\r\n\r\n{}")
            assert connection.response().status in (400, 431), fields[0][0][:10]
    with Connection(gateway.port, 10) as connection:
        connection.send(b"POST /v1/orders?" + b"x" * 40000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.response().status in (400, 414, 431)
    assert not upstream.arrivals


def test_json_that_is_none_is_400_with_its_place(t):
    upstream, gateway = t.both()
    for body, offset in ((b'{"a":1,"a":2}', 7), (b'{"a":}', 5), (b'{"a":1} x', 8), (b"\xef\xbb\xbf{}", 0),
                         (b'"\xff"', 1), (b'"\\ud800"', None), (b"[" * 129 + b"]" * 129, None),
                         (b'{"a":1e10000}', None), (b"[1" + b"0" * 1001 + b"]", None), (b"nul", None)):
        response = gateway.post(t.key(), body)
        assert (response.status, response.code) == (400, "request_body_invalid"), (body[:20], response)
        assert response.json()["may_have_executed"] in (True, False)
        if offset is not None:
            assert str(offset) in response.json()["detail"] or \
                response.json().get("offset") == offset, (body, response.json())
    assert not upstream.arrivals and t.records() == 0
    assert gateway.post(t.key(), b"").status == 201, "an empty body is fine"


def test_a_body_that_never_comes_is_given_up(t):
    upstream, gateway = t.both(top={"header_timeout": "1s", "body_timeout": "1s"})
    for part in (b"POST /v1/or", HEAD, HEAD + b"Content-Length: 5\r\n\r\n{}"):
        began = time.monotonic()
        with Connection(gateway.port) as connection:
            connection.send(part)
            assert connection.ended(), part
            assert connection.buffer == b"" or b" 408 " in connection.buffer.split(b"\r\n")[0]
        assert 0.8 < time.monotonic() - began < 9, part  # where nothing is set it takes 10 s and more
    assert not upstream.arrivals and t.records() == 0


def test_a_head_that_trickles_is_given_up(t):
    _, gateway = t.both(top={"header_timeout": "1s"})
    began = time.monotonic()
    with Connection(gateway.port, 10) as connection:
        try:
            for byte in HEAD * 3:
                connection.send(bytes([byte]))
                time.sleep(0.1)
                if time.monotonic() - began > 9:
                    raise AssertionError("a client that trickles holds its connection")
        except OSError:
            pass
        assert time.monotonic() - began < 9


def test_expect_100_continue_is_answered_before_the_body(t):
    upstream, gateway = t.both()
    key = t.key()
    head = (f"POST /v1/orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\n"
            "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n").encode()
    with Connection(gateway.port, 5) as connection:
        connection.send(head)
        assert connection.line().startswith(b"HTTP/1.1 100") and connection.line() == b""
        connection.send(b"{}")
        assert connection.response().status == 201
    arrival, = upstream.of(key)
    assert arrival.field("Expect") is None, "nothing is asked of the upstream"
    with Connection(gateway.port, 5) as connection:
        connection.send(head.replace(b"Idempotency-Key", b"X-Key"))
        assert connection.response().status == 400, "refused before a body is sent"


def test_http_1_0_gets_its_answer_and_is_closed(t):
    upstream, gateway = t.both()
    with Connection(gateway.port, 5) as connection:
        connection.send(b"POST /v1/orders HTTP/1.0\r\nHost: a\r\nIdempotency-Key: old\r\n"
                        b"Content-Length: 2\r\n\r\n{}")
        response = connection.response()
        assert response.status == 201 and response.field("Transfer-Encoding") is None
        assert connection.ended()
    assert upstream.count("old") == 1


def test_connections_are_bounded(t):
    _, gateway = t.both(top={"workers": 1, "limits": {"connections": 10}})
    crowd = [Connection(gateway.port, 3) for _ in range(30)]
    time.sleep(0.2)
    for connection in crowd:
        connection.close()

    def room():  # until it has seen that the crowd is gone, it closes what comes
        with contextlib.suppress(OSError, Cut):
            return gateway.post(t.key()).status == 201
        return False
    until(room, 10, "room for others")
