"""`onceward digest`: somebody has a 409 and two bodies, and understands it in one call."""
import gzip
import json
import os
import subprocess

from harness import ONCEWARD
from test_digest_keys import NEW, OLD, keyed, write
from test_same_request import multipart

JSON = ["--header", "Content-Type: application/json"]
ROUTE = ["--route", "POST /v1/orders"]


def bodies(t, *contents):
    names = []
    for content in contents:
        names.append(os.path.join(t.directory, f"body-{len(os.listdir(t.directory))}"))
        with open(names[-1], "wb") as file:
            file.write(content)
    return names


def digest(t, gateway, *arguments, code=0):
    done = t.run("digest", "-c", gateway.file, *arguments)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def stored(t, key):
    """What the ledger holds of a request: digest, raw digest, key id, rules id."""
    return t.rows("SELECT encode(digest, 'hex'), encode(raw_digest, 'hex'), k.digest_key, "
                  "k.rules_id FROM onceward.key k JOIN onceward.op o USING (op_id) "
                  f"WHERE o.key = '{key}'")[0]


def test_the_digest_command_prints_what_the_ledger_holds(t):
    _, gateway = keyed(t, OLD)
    _, ruled = keyed(t, OLD, idempotency={"request": {
        "ignore": ["/t"], "headers": ["API-Version"], "query": ["mode"]}})
    gateway.start()
    ruled.start()
    body = b'{"t":5,"item":"book","amount":10.0}'
    for one, fields, target in (
            (gateway, [], "/v1/orders"), (gateway, [("Content-Encoding", "gzip")], "/v1/orders"),
            (ruled, [("API-Version", "7")], "/v1/orders?mode=x&trace=%41"),
            (ruled, [], "/v1/orders?mode=%78")):
        key = t.key()
        sent = gzip.compress(body) if ("Content-Encoding", "gzip") in fields else body
        assert one.post(key, sent, fields, target=target).status == 201
        headers = [word for name, value in fields for word in ("--header", f"{name}: {value}")]
        told = json.loads(digest(t, one, "--route", f"POST {target}", "--json", *JSON, *headers,
                                 *bodies(t, sent)))
        assert [told["bodies"][0]["digest"], told["bodies"][0]["raw_digest"],
                str(told["digest_key"])] == stored(t, key)[:3], told
        assert [told["rules"]] in t.rows("SELECT text FROM onceward.rules WHERE id = "
                                         + stored(t, key)[3])
    write(gateway, NEW, OLD)
    assert json.loads(digest(t, gateway, *ROUTE, "--json", *bodies(t, body)))["digest_key"] == 2


def test_two_bodies_are_told_apart_by_json_pointer_in_plain_words(t):
    t.upstream()
    gateway = t.gateway(start=False)
    one, two = bodies(t, b'{"amount":10,"tags":["a","b"],"to":{"name":"J\\u00f6rg"},"n":1200000}',
                      b'{"to":{"name":"J\xc3\xb6rg","zip":"1"},"tags":["a","c"],"amount":12.0}')
    said = digest(t, gateway, *ROUTE, *JSON, one, two).splitlines()
    assert "different requests" in said[0]
    assert said[1:5] == ["  /amount: 10 in the first, 12 in the second",
                         "  /n: 1200000 in the first, absent in the second",
                         '  /tags/1: "b" in the first, "c" in the second',
                         '  /to/zip: absent in the first, "1" in the second'], said
    told = json.loads(digest(t, gateway, *ROUTE, *JSON, "--json", one, two))
    assert told["same"] is False
    assert told["differences"][0] == {"pointer": "/amount", "first": "10", "second": "12"}
    assert told["differences"][3]["first"] is None


def test_two_spellings_of_one_request_are_said_to_be_the_same(t):
    t.upstream()
    gateway = t.gateway(start=False, idempotency={"request": {"ignore": ["/t"]}})
    one, two = bodies(t, b'{"a":1.0,"t":1}', b'{"t":2, "a":1}')
    said = digest(t, gateway, *ROUTE, *JSON, one, two)
    assert said.startswith("They are the same request"), said
    assert "/t" in said, "the rules stand there"
    told = json.loads(digest(t, gateway, *ROUTE, *JSON, "--json", one, two))
    assert told["same"] is True and told["differences"] == []
    assert told["bodies"][0]["digest"] == told["bodies"][1]["digest"]
    assert told["bodies"][0]["raw_digest"] != told["bodies"][1]["raw_digest"]


def test_forms_and_parts_are_told_apart_by_their_names(t):
    t.upstream()
    gateway = t.gateway(start=False)
    form = ["--header", "Content-Type: application/x-www-form-urlencoded"]
    said = digest(t, gateway, *ROUTE, *form, *bodies(t, b"b=x+y&a=1&a=2", b"a=1&b=x%20z&a=2"))
    assert '  /b: "x y" in the first, "x z" in the second\n' in said
    said = digest(t, gateway, *ROUTE, *form, *bodies(t, b"a=1&a=2", b"a=2&a=1"))
    assert '  /a (2): "2" in the first, "1" in the second\n' in said
    title = b'Content-Disposition: form-data; name="title"'
    photo = b'Content-Disposition: form-data; name="photo"; filename="a.png"'
    one, _, _ = multipart(b"one", [(title, b"Sea"), (photo, b"\0" * 1000)])
    two, _, _ = multipart(b"two", [(title, b"Lake"), (photo, b"\0" * 1000)])
    moved, _, _ = multipart(b"two", [(photo, b"\0" * 1000), (title, b"Sea")])
    parts = ["--header", "Content-Type: multipart/form-data"]  # each body has its own boundary
    said = digest(t, gateway, *ROUTE, *parts, *bodies(t, one, two)).splitlines()
    assert said[1:3] == ['  /title: "Sea" in the first, "Lake" in the second', ""], said
    said = digest(t, gateway, *ROUTE, *parts, *bodies(t, one, moved))
    assert "another order" in said
    shown = digest(t, gateway, *ROUTE, *parts, *bodies(t, one))
    assert '/title = "Sea"' in shown and '1000 bytes with SHA-256 541b3e9daa09b20b' in shown, shown


def test_one_body_is_shown_as_it_is_compared(t):
    t.upstream()
    gateway = t.gateway(start=False, idempotency={"request": {"ignore": ["/t"],
                                                              "headers": ["API-Version"]}})
    said = digest(t, gateway, *ROUTE, *bodies(t, b'{"b":1e3,"t":9,"a":"\x7f\xc2\x9b"}'))
    assert '{\n  "a": "\\u007f\\u009b",\n  "b": 1000\n}\n' in said, said
    assert "application/json was assumed" in said and "api-version: (absent)" in said.lower()
    with subprocess.Popen([ONCEWARD, "digest", "-c", gateway.file, *ROUTE, *JSON, "-"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(b'{"b":1e3,"t":9,"a":"\x7f\xc2\x9b"}')
    digests = [[line for line in text.splitlines() if line.startswith("digest  ")]
               for text in (said, out.decode())]
    assert digests[0] == digests[1] and len(digests[0]) == 1


def test_what_the_gateway_would_refuse_the_digest_command_refuses(t):
    t.upstream()
    gateway = t.gateway(start=False, idempotency={"request": {"max_body": "20B"}})
    good, cut, large = bodies(t, b'{"a":1}', b'{"a":', b'{"a":"' + b"x" * 20 + b'"}')
    bomb, = bodies(t, gzip.compress(b'"' + b"x" * 20 + b'"', 9)[:30])
    assert "at byte 5 " in digest(t, gateway, *ROUTE, *JSON, cut, code=1)
    assert "larger than request.max_body" in digest(t, gateway, *ROUTE, *JSON, large, code=1)
    assert "larger than request.max_body" in digest(t, gateway, *ROUTE, *JSON, bomb, code=1)
    for route, words in (("POST /v1/nothing", "no route takes"), ("GET /v1/orders", "passes through"),
                         ("POST /plain/a", "passes through"), ("POST", "METHOD PATH"),
                         ("GET /v1/orders/7", "PATCH")):
        assert words in digest(t, gateway, "--route", route, good, code=1), route
    assert "NAME: VALUE" in digest(t, gateway, *ROUTE, "--header", "wrong", good, code=1)
    assert "cannot be opened" in digest(t, gateway, *ROUTE, "/nothing/there", code=1)
    assert "--route" in digest(t, gateway, good, code=2)
    assert "a word is missing" in digest(t, gateway, *ROUTE, code=2)
    assert "too many" in digest(t, gateway, *ROUTE, good, good, good, code=2)
