"""What is a key, and what is none (CONTRACT 1, 2.3)."""
from harness import request_bytes, Connection

JSON = ("Content-Type", "application/json")


def refused(gateway, upstream, values, code="idempotency_key_invalid", body=b"{}"):
    fields = [JSON] + [("Idempotency-Key", value) for value in values]
    before = len(upstream.arrivals)
    response = gateway.request("POST", "/v1/orders", fields, body)
    assert (response.status, response.code) == (400, code), (values, response)
    assert response.json()["may_have_executed"] is False, values
    assert len(upstream.arrivals) == before, values


def test_a_missing_key_is_refused(t):
    upstream, gateway = t.both()
    refused(gateway, upstream, [], "idempotency_key_missing")
    assert t.records() == 0


def test_malformed_keys_are_refused(t):
    upstream, gateway = t.both()
    for value in ("", '"', '""', '"a', 'a"', '"a";p=1', '"a", "b"', "a,b", "a b", "a\\b", '"a\\b"',
                  '"a" b', "k\xe9y", '"k\xe9y"', "x" * 256, '"' + "x" * 256 + '"', "a\tb", '"a b"'):
        refused(gateway, upstream, [value])
    refused(gateway, upstream, ["a", "a"])
    refused(gateway, upstream, ["a", "b"])
    assert t.records() == 0


def test_a_malformed_key_of_bytes_never_seen_in_headers_is_refused(t):
    upstream, gateway = t.both()
    for value in (b"a\x01b", b"a\x7fb", b"\xff\xfe", b"a\rb"):
        head = request_bytes("POST", "/v1/orders", [JSON], b"{}").replace(
            b"\r\nContent-Length", b"\r\nIdempotency-Key: " + value + b"\r\nContent-Length")
        with Connection(gateway.port, 5) as connection:
            connection.send(head)
            assert connection.response().status == 400, value
    assert not upstream.arrivals


def test_quoted_and_bare_are_the_same_key(t):
    upstream, gateway = t.both()
    key = t.key()
    first, quoted = gateway.post(key), gateway.post(f'"{key}"')
    assert quoted.replayed and quoted.body == first.body
    strange = '!#$%&\'()*+-./:;<=>?@[]^_`{|}~'
    assert gateway.post(strange).status == 201
    assert gateway.post(f'"{strange}"').replayed
    escaped = gateway.post('"a\\"b\\\\c"')
    assert escaped.status == 201 and gateway.post('"a\\"b\\\\c"').replayed
    assert upstream.count(key) == 1


def test_keys_of_any_admitted_length_work(t):
    _, gateway = t.both()
    for key in ("x", "x" * 255, '"' + "y" * 255 + '"', '"' + '\\"' * 255 + '"'):
        assert gateway.post(key).status == 201, key
        assert gateway.post(key).replayed, key


def test_keys_differ_by_case(t):
    upstream, gateway = t.both()
    gateway.post("abc-" + "x"), gateway.post("ABC-" + "x")
    assert len(upstream.arrivals) == 2


def test_a_route_may_admit_only_one_form(t):
    upstream, gateway = t.both(idempotency={"key": {"syntax": "structured"}})
    refused(gateway, upstream, ["bare"])
    assert gateway.post('"quoted"').status == 201
    bare = t.gateway(idempotency={"key": {"syntax": "bare"}, "operation": "orders.bare"})
    refused(bare, upstream, ['"quoted"'])
    assert bare.post("bare").status == 201


def test_a_route_may_admit_only_uuids(t):
    upstream, gateway = t.both(idempotency={"key": {"format": "uuid"}})
    refused(gateway, upstream, ["order-1"])
    assert gateway.post("0b8f1f2e-59c5-4b7a-9a55-3f1b2f0c9d11").status == 201


def test_an_optional_key_that_is_missing_passes_unenforced(t):
    upstream, gateway = t.both(idempotency={"key": {"required": False}})
    one, two = gateway.post(None), gateway.post(None)
    assert one.status == two.status == 201 and one.body != two.body
    assert one.request_id is None and len(upstream.arrivals) == 2 and t.records() == 0
    refused(gateway, upstream, ["a b"])
    key = t.key()
    gateway.post(key)
    assert gateway.post(key).replayed
