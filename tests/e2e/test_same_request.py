"""What makes two requests the same (CONTRACT 4), through the whole gateway; and that what is
forwarded is what was received, whatever is compared."""
import gzip
import json
import zlib

from harness import until
from test_reload import reload

FORM = [("Content-Type", "application/x-www-form-urlencoded")]
MISMATCH = "idempotency_payload_mismatch"


def rules(**request):
    return {"idempotency": {"request": request}}


def same(gateway, first, second):
    """Two requests under one key, each (body, fields, target): does the second get a replay?"""
    key = gateway.stage.key()
    answers = [gateway.post(key, body, fields, target=target)
               for body, fields, target in (first, second)]
    upstream = gateway.stage.upstreams[0]
    assert answers[0].status == 201, answers[0]
    assert upstream.count(key) == 1
    assert upstream.of(key)[0].body == first[0], "the bytes that were received are forwarded"
    assert answers[1].replayed or answers[1].code == MISMATCH, answers[1]
    return answers[1].replayed


def body_pair(gateway, first, second, fields=()):
    return same(gateway, (first, fields, "/v1/orders"), (second, fields, "/v1/orders"))


def test_the_spelling_of_json_does_not_count_and_its_values_do(t):
    _, gateway = t.both()
    body = b'{"amount":10.50,"items":["b","a"],"note":"\\u00e9"}'
    for other in (b'{ "note" : "\xc3\xa9", "items":["b", "a"], "amount": 1050e-2 }',
                  b'{"items":["\\u0062","a"],"amount":10.5,"note":"\\u00E9"}'):
        assert body_pair(gateway, body, other), other
    for other in (b'{"amount":10.51,"items":["b","a"],"note":"\\u00e9"}',
                  b'{"amount":10.50,"items":["a","b"],"note":"\\u00e9"}',
                  b'{"amount":"10.50","items":["b","a"],"note":"\\u00e9"}',
                  b'{"amount":10.50,"items":["b","a"],"note":"e\xcc\x81"}',
                  b'{"amount":10.50,"items":["b","a"],"note":"\\u00e9","x":null}'):
        assert not body_pair(gateway, body, other), other


def test_large_numbers_are_told_apart_unless_they_are_doubles(t):
    upstream = t.upstream()
    exact, double = t.gateway(upstream), t.gateway(upstream, **rules(numbers="ieee754", version=2))
    one, other = b'{"amount":9007199254740993}', b'{"amount":9007199254740992}'
    assert not body_pair(exact, one, other)
    assert body_pair(double, one, other)
    assert not body_pair(double, b'{"amount":1}', b'{"amount":2}')


def test_what_is_ignored_may_change_and_nothing_else(t):
    _, gateway = t.both(**rules(ignore=["/client_time", "/items/*/seen"]))
    body = b'{"item":"book","client_time":1,"items":[{"n":1,"seen":5},{"n":2}]}'
    assert body_pair(gateway, body,
                     b'{"client_time":{"a":2},"item":"book","items":[{"n":1},{"n":2,"seen":9}]}')
    assert not body_pair(gateway, body,
                         b'{"item":"book","client_time":1,"items":[{"n":1,"seen":5},{"n":3}]}')
    assert not body_pair(gateway, body,
                         b'{"item":"book","items":[{"n":1},{"n":2}],"server_time":1}')


def test_only_what_is_named_counts_where_anything_is(t):
    _, gateway = t.both(**rules(only=["/item", "/amount"]))
    assert body_pair(gateway, b'{"item":"book","amount":1,"trace":"a"}',
                     b'{"amount":1.0,"item":"book","other":[]}')
    assert not body_pair(gateway, b'{"item":"book","amount":1}', b'{"item":"book","amount":2}')
    assert not body_pair(gateway, b'{"item":"book","amount":1}', b'{"item":"book"}')


def test_a_default_that_is_written_is_the_same_as_one_that_is_not(t):
    _, gateway = t.both(**rules(defaults='{"quantity":1,"ship":{"by":"post"}}'))
    assert body_pair(gateway, b'{"item":"book"}', b'{"item":"book","quantity":1.0}')
    assert body_pair(gateway, b'{"item":"book","ship":{"by":"post"}}', b'{"item":"book"}')
    assert not body_pair(gateway, b'{"item":"book"}', b'{"item":"book","quantity":2}')
    assert not body_pair(gateway, b'{"item":"book"}', b'{"item":"book","ship":{"by":"air"}}')


def test_the_order_of_a_forms_fields_does_not_count_but_that_of_equal_names_does(t):
    _, gateway = t.both()
    assert body_pair(gateway, b"a=1&b=x+y&a=2", b"b=x%20y&a=1&a=%32", FORM)
    assert not body_pair(gateway, b"a=1&b=x&a=2", b"a=2&b=x&a=1", FORM)
    assert not body_pair(gateway, b"a=1", b"a=1&b=", FORM)


def test_rules_hold_for_the_fields_of_forms_too(t):
    _, gateway = t.both(**rules(ignore=["/client_time"]))
    assert body_pair(gateway, b"a=1&client_time=5", b"client_time=6&client_time=7&a=1", FORM)
    assert not body_pair(gateway, b"a=1&client_time=5", b"client_time=5&a=2", FORM)


def multipart(boundary, parts):
    body = b"".join(b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary, head, content)
                    for head, content in parts)
    return (body + b"--%s--\r\n" % boundary,
            [("Content-Type", f"multipart/form-data; boundary={boundary.decode()}")], "/v1/orders")


def test_the_boundary_of_a_multipart_body_does_not_count_and_its_parts_do(t):
    _, gateway = t.both()
    title = (b'Content-Disposition: form-data; name="title"', b"A photo")
    photo = (b'Content-Disposition: form-data; name="photo"; filename="a.png"\r\n'
             b"Content-Type: image/png", bytes(range(256)))
    spelt = (b'content-type:image/png\r\ncontent-disposition: form-data; filename="a.png"; '
             b"name=photo", bytes(range(256)))
    first = multipart(b"AaB03x", [title, photo])
    assert same(gateway, first, multipart(b"other-boundary", [title, photo]))
    assert same(gateway, first, multipart(b"x", [title, spelt]))
    assert not same(gateway, first, multipart(b"AaB03x", [photo, title]))
    assert not same(gateway, first, multipart(b"AaB03x", [title, (photo[0], b"\1" + photo[1][1:])]))
    renamed = (photo[0].replace(b"a.png", b"b.png"), photo[1])
    assert not same(gateway, first, multipart(b"AaB03x", [title, renamed]))
    body, fields, _ = multipart(b"AaB03x", [title, photo])
    cut = gateway.post(t.key(), body[:-6], fields)
    assert (cut.status, cut.code) == (400, "request_body_invalid"), cut


def encoded(coding, body):
    return (body, [("Content-Type", "application/json"), ("Content-Encoding", coding)],
            "/v1/orders")


def test_a_compressed_body_is_compared_by_what_is_in_it(t):
    _, gateway = t.both()
    body = b'{"item":"book","amount":10}'
    plain = (body, [], "/v1/orders")
    assert same(gateway, plain, encoded("gzip", gzip.compress(body)))
    assert same(gateway, encoded("gzip", gzip.compress(body, 1)),
                encoded("GZIP", gzip.compress(body.replace(b"10", b"10.0"), 9)))
    assert same(gateway, encoded("deflate", zlib.compress(body)), plain)
    assert not same(gateway, plain,
                    encoded("gzip", gzip.compress(b'{"item":"book","amount":11}')))
    assert not same(gateway, encoded("br", b"whatever"), encoded("br", b"whatever else"))
    corrupt = gateway.post(t.key(), *encoded("gzip", gzip.compress(body)[:-4])[:2])
    assert (corrupt.status, corrupt.code) == (400, "request_body_invalid"), corrupt
    assert t.records() == 5


def test_a_compressed_bomb_is_refused_by_its_size_and_nothing_is_reserved(t):
    upstream, gateway = t.both(**rules(max_body="64KiB"))
    key = t.key()
    bomb = gzip.compress(b'"' + b"a" * 10_000_000 + b'"')
    refused = gateway.post(key, *encoded("gzip", bomb)[:2])
    assert (refused.status, refused.code) == (413, "request_body_too_large"), refused
    assert t.records() == 0 and upstream.count(key) == 0
    assert gateway.post(key, *encoded("gzip", gzip.compress(b'"' + b"a" * 60_000 + b'"'))[:2]
                        ).status == 201


def test_a_selected_header_counts_and_an_absent_one_is_not_an_empty_one(t):
    upstream, gateway = t.both(**rules(headers=["API-Version"]))

    def with_version(*values):
        return b"{}", [("API-Version", value) for value in values], "/v1/orders"
    assert same(gateway, with_version("1"), (b"{}", [("api-version", "1"), ("X-Other", "2")],
                                            "/v1/orders"))
    assert not same(gateway, with_version("1"), with_version("2"))
    assert not same(gateway, with_version("1"), with_version())
    assert not same(gateway, with_version(""), with_version())
    assert upstream.arrivals[0].field("API-Version") == "1"


def test_only_the_listed_parameters_count_where_there_is_a_list(t):
    upstream = t.upstream()
    everything, listed = t.gateway(upstream), t.gateway(upstream, **rules(query=["mode"]))
    none = t.gateway(upstream, **rules(query=[]))

    def at(query):
        return b"{}", [], f"/v1/orders?{query}"
    assert same(everything, at("b=2&a=1"), at("a=%31&b=2"))
    assert not same(everything, at("a=1"), at("a=2"))
    assert same(listed, at("mode=x&trace=1"), at("trace=2&mode=x"))
    assert not same(listed, at("mode=x"), at("mode=y"))
    assert same(none, at("mode=x"), at("mode=y"))
    assert upstream.arrivals[0].target == "/v1/orders?b=2&a=1"


def change_rules(gateway, **request):
    for route in gateway.settings["routes"]:
        if "idempotency" in route:
            route["idempotency"]["request"] = request
    assert reload(gateway)


def test_under_changed_rules_only_the_same_bytes_are_the_same_request(t):
    upstream, gateway = t.both(top={"workers": 1})  # a reload reaches one after the other
    key, body = t.key(), b'{"item":"book","client_time":1}'
    first = gateway.post(key, body)
    assert first.status == 201
    change_rules(gateway, ignore=["/client_time"])
    until(lambda: gateway.post(key, body.replace(b"1", b"2")).code ==
          "idempotency_rules_changed", 5, "the new rules")
    changed = gateway.post(key, b'{ "item":"book", "client_time":1 }')
    assert (changed.status, changed.code) == (409, "idempotency_rules_changed"), changed
    assert changed.json()["retry"] == "never"
    replay = gateway.post(key, body)
    assert replay.replayed and replay.body == first.body, "byte for byte it is the same"
    assert gateway.post(key, body, [("Content-Type", "application/json; a=b")]).code == \
        "idempotency_rules_changed"
    other = t.key()
    assert gateway.post(other, body).status == 201
    assert gateway.post(other, body.replace(b"1", b"2")).replayed, "new records, new rules"
    texts = [row[0] for row in t.rows("SELECT text FROM onceward.rules")]
    assert any("/client_time" in text for text in texts), texts
    change_rules(gateway)
    until(lambda: gateway.post(key, b'{ "client_time":1, "item":"book" }').replayed, 5,
          "the old rules being back")
    assert upstream.count(key) == 1


def test_another_version_of_the_rules_is_a_change_of_them(t):
    _, gateway = t.both(top={"workers": 1})
    key = t.key()
    gateway.post(key)
    change_rules(gateway, version=2)
    until(lambda: gateway.post(key, b'{ "item" : "book" }').code == "idempotency_rules_changed",
          5, "the new rules")
    assert gateway.post(key).replayed


def test_a_raw_route_compares_bytes(t):
    _, gateway = t.both(**rules(body="raw"))
    assert body_pair(gateway, b'{"a":1}', b'{"a":1}')
    assert not body_pair(gateway, b'{"a":1}', b'{"a": 1}')
    assert gateway.post(t.key(), b'{"a":').status == 201, "and validates none"


def test_a_route_of_a_kind_reads_every_body_as_that(t):
    upstream = t.upstream()
    as_json, as_form = t.gateway(upstream, **rules(body="json")), \
        t.gateway(upstream, **rules(body="form"))
    text = [("Content-Type", "text/plain")]
    assert body_pair(as_json, b'{"a":1,"b":2}', b'{"b":2,"a":1}', text)
    assert as_json.post(t.key(), b"a=1", text).code == "request_body_invalid"
    assert body_pair(as_form, b"a=1&b=2", b"b=2&a=1", text)


def test_rules_that_contradict_each_other_are_errors_with_a_line(t):
    t.upstream()
    for request, words in (({"headers": ["Authorization"]}, "Authorization"),
                           ({"headers": ["Date"]}, "Date"),
                           ({"headers": ["traceparent"]}, "traceparent"),
                           ({"headers": ["Idempotency-Key"]}, "Idempotency-Key"),
                           ({"ignore": ["client_time"]}, "client_time"),
                           ({"ignore": ["/a"], "only": ["/a"]}, "/a"),
                           ({"defaults": "[]"}, "defaults"),
                           ({"defaults": json.dumps({"a": 1})[:-1]}, "defaults")):
        gateway = t.gateway(start=False, **rules(**request))
        done = t.run("check", "-c", gateway.file)
        assert done.returncode == 1 and words in done.stderr, (request, done.stderr)
        assert f"{gateway.file}:" in done.stderr, done.stderr
