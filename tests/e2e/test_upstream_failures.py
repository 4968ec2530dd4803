"""An upstream that is away, slow, or talks nonsense: at most one send, ever (CONTRACT 5, DESIGN 4)."""
import time

from harness import Connection, answer, close, never, raw, raw_then_reset, request_bytes, reset, roomy, tag

ANSWER = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"


def held(gateway, upstream, key, response, status):
    """This attempt is unknown: the client was told so, and a retry does not send again."""
    assert (response.status, response.code) == (status, "idempotency_result_unknown"), response
    assert response.json()["may_have_executed"] is True
    again = gateway.post(key)
    assert (again.status, again.code) == (503, "idempotency_result_unknown"), again
    assert upstream.count(key) == 1


def test_an_upstream_that_cannot_be_reached_frees_the_key(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.refuse()
    refused = gateway.post(key)
    assert (refused.status, refused.code) == (503, "upstream_unreachable"), refused
    assert refused.json()["may_have_executed"] is False and refused.field("Retry-After")
    upstream.accept_again()
    assert gateway.post(key).status == 201 and upstream.count(key) == 1
    assert gateway.post(key).replayed


def test_the_next_server_is_tried_where_one_cannot_be_reached(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, top={"upstreams": {"orders": {"servers": [
        f"http://127.0.0.1:{t.free_port()}", f"http://127.0.0.1:{upstream.port}"]}}})
    for _ in range(4):
        key = t.key()
        assert gateway.post(key).status == 201 and upstream.count(key) == 1


@tag("threads")
def test_no_answer_in_time_is_504_and_unknown(t):
    upstream, gateway = t.both(**roomy(top={"upstreams": {"orders": {"first_byte_timeout": "300ms"}}}))
    key = t.key()
    upstream.on(key, never())
    began = time.monotonic()
    response = gateway.post(key)
    assert 0.25 < time.monotonic() - began < 15, "where nothing else is set it takes 30 s"
    held(gateway, upstream, key, response, 504)


def test_an_answer_that_pauses_is_504_and_unknown(t):
    upstream, gateway = t.both(top={"upstreams": {"orders": {"idle_timeout": "300ms"}}})
    key = t.key()

    def pause(turn):
        turn.send(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nhalf")
        return never()(turn)
    upstream.on(key, pause)
    held(gateway, upstream, key, gateway.post(key), 504)


def test_an_answer_that_trickles_is_cut_at_the_total_timeout(t):
    upstream, gateway = t.both(top={"upstreams": {"orders": {"timeout": "1s"}}})
    key = t.key()

    def trickle(turn):
        turn.send(b"HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            turn.send(b"x")
            time.sleep(0.1)
        return False
    upstream.on(key, trickle)
    held(gateway, upstream, key, gateway.post(key), 504)


CUTS = {
    "closed": close(),
    "reset": reset(),
    "half a status line": raw(b"HTTP/1.1 2"),
    "half a status line, reset": raw_then_reset(b"HTTP/1.1 2"),
    "half a head": raw(b"HTTP/1.1 201 Created\r\nContent-Le"),
    "a head without its end": raw(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n"),
    "half a body": raw(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n{}"),
    "half a chunked body": raw(b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
    "no last chunk": raw(b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"),
    "only a 100": raw(b"HTTP/1.1 100 Continue\r\n\r\n"),
}


def test_an_answer_cut_off_anywhere_is_502_and_unknown(t):
    upstream, gateway = t.both(**roomy())
    for name, action in CUTS.items():
        key = t.key()
        upstream.on(key, action)
        response = gateway.post(key)
        print(name, response)
        held(gateway, upstream, key, response, 502)


def test_a_kept_connection_that_dies_never_causes_a_second_send(t):
    """libcurl's own transfers would send these twice."""
    upstream, gateway = t.both(**roomy(top={"workers": 1}))
    for body in (b'{"a":1}', b"", b'"' + b"x" * 200_000 + b'"'):
        for method, target in (("POST", "/v1/orders"), ("PATCH", "/v1/orders/7")):
            for name in ("closed", "reset", "half a status line", "half a status line, reset"):
                assert gateway.post(t.key()).status == 201, "fills the pool"
                key = t.key()
                upstream.on(key, CUTS[name])
                fields = [("Idempotency-Key", key), ("Content-Type", "application/json")]
                response = gateway.request(method, target, fields, body)
                assert response.status == 502, (name, method, response)
                time.sleep(0.05)
                assert upstream.count(key) == 1, (name, method, len(body))


def test_a_kept_connection_that_was_closed_meanwhile_is_not_used(t):
    upstream, gateway = t.both(top={"workers": 1})
    for _ in range(5):
        assert gateway.post(t.key()).status == 201
        upstream.drop_connections()
        time.sleep(0.05)
        key = t.key()
        assert gateway.post(key).status == 201 and upstream.count(key) == 1


def test_connections_are_used_again(t):
    upstream, gateway = t.both(top={"workers": 1})
    for _ in range(10):
        gateway.post(t.key())
    assert len({a.connection for a in upstream.arrivals}) == 1


def test_fresh_connections_are_not_used_again(t):
    upstream, gateway = t.both(top={"upstreams": {"orders": {"connections": "fresh"}}})
    for _ in range(3):
        assert gateway.post(t.key()).status == 201
    assert len({a.connection for a in upstream.arrivals}) == 3


MALFORMED = {
    "both lengths": b"HTTP/1.1 201 X\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 201 X\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "a signed length": b"HTTP/1.1 201 X\r\nContent-Length: +2\r\n\r\n{}",
    "bare line feeds": b"HTTP/1.1 201 X\nContent-Length: 2\n\n{}",
    "a folded field": b"HTTP/1.1 201 X\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}",
    "a control byte": b"HTTP/1.1 201 X\r\nX-A: b\x01\r\nContent-Length: 2\r\n\r\n{}",
    "a space before the colon": b"HTTP/1.1 201 X\r\nContent-Length : 2\r\n\r\n{}",
    "101 unasked": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
    "a bad chunk": b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "an unknown coding": b"HTTP/1.1 201 X\r\nTransfer-Encoding: gzip\r\n\r\nab",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a status of two digits": b"HTTP/1.1 20 X\r\nContent-Length: 0\r\n\r\n",
    "nine times 100": b"HTTP/1.1 100 Continue\r\n\r\n" * 9 + ANSWER,
    "a head without end": b"HTTP/1.1 201 X\r\n" + b"X-A: " + b"x" * 70000,
}


def test_a_malformed_answer_is_502_and_unknown(t):
    upstream, gateway = t.both(**roomy())
    for name, data in MALFORMED.items():
        key = t.key()
        upstream.on(key, raw(data))
        response = gateway.post(key)
        print(name, response)
        held(gateway, upstream, key, response, 502)


def test_informational_answers_are_skipped(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n"
                         b"Link: </a>\r\n\r\n" + ANSWER, keep=True))
    first, again = gateway.post(key), gateway.post(key)
    assert first.status == 201 and again.replayed and again.body == b"{}"
    assert upstream.count(key) == 1


def test_a_chunked_answer_is_stored_whole_and_its_trailers_are_dropped(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, raw(b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\nTrailer: ETag\r\n\r\n"
                         b"3;x=y\r\nabc\r\n4\r\ndefg\r\n0\r\nETag: \"t\"\r\n\r\n", keep=True))
    for response in (gateway.post(key), gateway.post(key)):
        assert (response.status, response.body) == (201, b"abcdefg")
        assert response.field("ETag") is None
    assert upstream.count(key) == 1


def test_bytes_behind_an_answer_spoil_the_connection_not_the_next_request(t):
    upstream, gateway = t.both(top={"workers": 1})
    key, other = t.key(), t.key()
    upstream.on(key, raw(ANSWER + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsmugg", keep=True))
    gateway.post(key)
    response = gateway.post(other)
    assert response.status == 201 and b"smugg" not in response.body and b"order" in response.body


def test_an_answer_that_ends_with_the_connection_is_not_taken_for_whole(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, raw(b"HTTP/1.1 201 X\r\nContent-Type: text/plain\r\n\r\nhow much is missing?"))
    gateway.post(key)
    again = gateway.post(key)
    assert again.code == "idempotency_result_unknown" and upstream.count(key) == 1


def test_an_answer_that_closes_its_connection_is_believed(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, answer(201, b"{}", [("Connection", "close")], keep=False))
    assert gateway.post(key).status == 201
    assert gateway.post(key).replayed and upstream.count(key) == 1


def test_a_queue_that_is_too_long_frees_the_key(t):
    upstream, gateway = t.both(**roomy(top={"workers": 1, "upstreams": {"orders": {
        "max_connections": 1, "queue_timeout": "200ms"}}}))
    busy, key = t.key(), t.key()
    gate = upstream.gate(busy)
    with Connection(gateway.port) as connection:
        connection.send(request_bytes("POST", "/v1/orders", [("Idempotency-Key", busy)], b"x"))
        gate.arrived()
        response = gateway.post(key)
        assert response.status == 503 and response.json()["may_have_executed"] is False, response
        gate.open()
        assert connection.response().status == 201
    assert gateway.post(key).status == 201 and upstream.count(key) == 1
