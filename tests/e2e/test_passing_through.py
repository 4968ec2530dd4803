"""Requests that are not enforced: a plain, correct proxy (CONTRACT 2.1, RFC 9110 7.6)."""
from harness import Connection, answer, close, never, raw, request_bytes, reset, roomy, tag


def pass_through(t, **more):
    upstream = t.upstream()
    return upstream, t.gateway(upstream, routes=[{"match": "* /*", "upstream": "orders"}], **more)


@tag("threads")
def test_methods_targets_and_bodies_pass_as_they_are(t):
    upstream, gateway = pass_through(t)
    for method, body in (("GET", None), ("POST", b"\x00\xff body"), ("PUT", b""), ("DELETE", None),
                         ("PATCH", b"x" * 200_000), ("OPTIONS", None), ("PURGE", None)):
        target = f"/a/%7e/{method}?q=%20+&&a=b"
        response = gateway.request(method, target, [("X-Mine", "a,b")], body)
        assert response.status == 201, (method, response)
        arrival = upstream.arrivals[-1]
        assert (arrival.method, arrival.target) == (method, target)
        assert arrival.body == (body or b"") and arrival.field("X-Mine") == "a,b"
    assert t.records() == 0


def test_head_has_the_length_and_no_content(t):
    upstream, gateway = pass_through(t)
    upstream.on("/h", raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", keep=True))
    with Connection(gateway.port, 5) as connection:
        connection.send(b"HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n")
        response = connection.response("HEAD")
        assert response.status == 200 and response.field("Content-Length") == "1234"
        connection.send(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.response().status == 201, "nothing stands between"


def test_head_without_a_length_is_given_none(t):
    upstream, gateway = pass_through(t)
    upstream.on("/h", raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
    with Connection(gateway.port, 5) as connection:
        connection.send(request_bytes("HEAD", "/h"))
        response = connection.response("HEAD")
        assert response.status == 200 and response.field("Content-Length") is None, response
        assert connection.ended() and connection.buffer == b"", "nothing stands behind it"


def test_what_is_for_one_connection_only_is_not_passed_on(t):
    upstream, gateway = pass_through(t)
    upstream.on("/hop", answer(200, b"{}", [
        ("Connection", "X-Secret, keep-alive"), ("X-Secret", "1"), ("Keep-Alive", "timeout=5"),
        ("Proxy-Authenticate", "Basic"), ("Upgrade", "h2c"), ("X-End", "2")]))
    response = gateway.request("GET", "/hop", [
        ("Connection", "X-Mine, close"), ("X-Mine", "1"), ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "Basic eA=="), ("TE", "trailers"), ("Upgrade", "websocket"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"), ("Proxy-Connection", "close"), ("X-End", "3")])
    arrival, = upstream.arrivals
    for name in ("X-Mine", "Keep-Alive", "Proxy-Authorization", "TE", "Upgrade", "HTTP2-Settings",
                 "Proxy-Connection"):
        assert arrival.field(name) is None, name
    assert arrival.field("X-End") == "3"
    assert "x-mine" not in (arrival.field("Connection") or "").lower()
    for name in ("X-Secret", "Keep-Alive", "Proxy-Authenticate", "Upgrade"):
        assert response.field(name) is None, name
    assert response.field("X-End") == "2"


def test_host_is_kept_and_the_way_is_noted(t):
    upstream, gateway = pass_through(t)
    gateway.request("GET", "/x", [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-Proto", "https"),
                                  ("X-Forwarded-Host", "evil")], host="shop.example:8443")
    arrival, = upstream.arrivals
    assert arrival.all("Host") == ["shop.example:8443"]
    assert arrival.all("X-Forwarded-For") == ["127.0.0.1"], "who is not trusted is replaced"
    assert arrival.all("X-Forwarded-Proto") == ["http"]
    assert arrival.all("X-Forwarded-Host") == ["shop.example:8443"]
    assert arrival.field("Via").startswith("1.1 ")


def test_a_trusted_proxys_notes_are_kept_and_added_to(t):
    upstream, gateway = pass_through(t, top={"trusted_proxies": ["127.0.0.1/32"]})
    gateway.request("GET", "/x", [("X-Forwarded-For", "7.7.7.7"), ("X-Forwarded-Proto", "https"),
                                  ("Via", "1.1 edge")])
    arrival, = upstream.arrivals
    assert ", ".join(arrival.all("X-Forwarded-For")) == "7.7.7.7, 127.0.0.1"
    assert arrival.all("X-Forwarded-Proto") == ["https"]
    assert ", ".join(arrival.all("Via")).startswith("1.1 edge, 1.1 ")


def test_enforced_forwards_note_the_way_too_and_ask_for_plain_bytes(t):
    upstream, gateway = t.both()
    key = t.key()
    gateway.post(key, fields=[("Connection", "X-Mine"), ("X-Mine", "1"), ("Cookie", "a=b"),
                              ("Accept-Encoding", "gzip, br"), ("Authorization", "Bearer x")])
    arrival, = upstream.of(key)
    assert arrival.field("X-Forwarded-For") == "127.0.0.1" and arrival.field("Via")
    assert arrival.field("X-Mine") is None and arrival.all("Host") == ["api.example"]
    assert arrival.field("Authorization") == "Bearer x" and arrival.field("Cookie") == "a=b"
    assert arrival.field("Accept-Encoding") in (None, "identity")


def test_an_absolute_target_names_the_host(t):
    upstream, gateway = pass_through(t)
    with Connection(gateway.port, 5) as connection:
        connection.send(b"GET http://shop.example/x?y=1 HTTP/1.1\r\nHost: other.example\r\n\r\n")
        assert connection.response().status == 201
    arrival, = upstream.arrivals
    assert arrival.all("Host") == ["shop.example"]


def test_keys_are_ignored_and_counted_where_nothing_is_enforced(t):
    upstream, gateway = t.both()
    one = gateway.post("same", target="/plain/x")
    two = gateway.post("same", target="/plain/x")
    assert one.body != two.body and len(upstream.arrivals) == 2 and t.records() == 0
    assert gateway.metric("key_ignored_total") == 2
    got = gateway.request("GET", "/v1/orders", [("Idempotency-Key", "same")])
    assert got.status == 201, "a safe method passes"


def test_strict_keys_refuses_what_would_be_ignored(t):
    upstream, gateway = t.both(top={"strict_keys": True})
    response = gateway.post("same", target="/plain/x")
    assert response.status == 400 and not upstream.arrivals, response
    assert gateway.post(None, target="/plain/x").status == 201
    assert gateway.request("GET", "/plain/x", [("Idempotency-Key", "same")]).status == 201


def test_an_upstream_that_fails_is_502_504_or_503(t):
    upstream, gateway = t.both(**roomy())
    hasty = t.gateway(upstream, top={"upstreams": {"orders": {"first_byte_timeout": "300ms"}}})
    for asked, action, status, code in (
            (gateway, close(), 502, "upstream_bad_response"),
            (gateway, reset(), 502, "upstream_bad_response"),
            (gateway, raw(b"HTTP/1.1 2"), 502, "upstream_bad_response"),
            (hasty, never(), 504, "upstream_timeout")):
        upstream.on("/plain/x", action)
        before = len(upstream.arrivals)
        response = asked.request("POST", "/plain/x", [], b"x")
        assert (response.status, response.code) == (status, code), response
        assert len(upstream.arrivals) == before + 1, "sent once here too"
    upstream.refuse()
    response = gateway.request("POST", "/plain/x", [], b"x")
    assert (response.status, response.code) == (503, "upstream_unreachable"), response


def test_whatever_status_passes_unchanged(t):
    upstream, gateway = pass_through(t)
    for status in (200, 204, 206, 302, 304, 404, 418, 500, 503):
        upstream.on("/s", answer(status, b"body", [("X-Cause", "mine")]))
        response = gateway.request("GET", "/s")
        assert response.status == status and response.field("X-Cause") == "mine"
        assert response.body == (b"" if status in (204, 304) else b"body")


def test_upgrades_never_get_around_enforcement(t):
    upstream, gateway = t.both()
    key = t.key()
    fields = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"),
              ("HTTP2-Settings", "AAMAAABkAAQAAP__")]
    assert gateway.post(key, fields=fields).status == 201
    assert gateway.post(key, fields=fields).replayed and upstream.count(key) == 1
    arrival, = upstream.of(key)
    assert arrival.field("Upgrade") is None and arrival.field("HTTP2-Settings") is None
