"""Strings that others found to break things (the big list of naughty strings, the tests of
structured fields), as member names, values, header values and keys: never a 5xx, and what reaches
the upstream is what was sent. Skipped, with a word, where the lists do not lie beside the project."""
import json
import os
import string

from harness import Connection, HERE, request_bytes

JSON = ("Content-Type", "application/json")
VISIBLE = set(string.printable) - set(string.whitespace)


def corpus(name):
    folder = os.environ.get("ONCEWARD_CORPORA", os.path.join(HERE, "../../../shared/corpora"))
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        print(f"skipped: no {path}")
        return []
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def as_field(text):
    """The text as the harness writes a field's value: a character a byte."""
    return text.encode("utf-8").decode("latin-1")


def fits_field(text):
    return all(c == "\t" or (c >= " " and c != "\x7f") for c in as_field(text))


def received(arrival, name):
    """The bytes of a field, without the spaces around them."""
    for line in arrival.head.split(b"\r\n")[1:]:
        if line.lower().startswith(name.lower().encode() + b":"):
            return line.split(b":", 1)[1].strip(b" \t")
    return None


def test_naughty_strings_are_names_and_values(t):
    upstream, gateway = t.both()
    for text in corpus("naughty-strings/blns.json"):
        key, body = t.key(), json.dumps({text: 1, "value ": text}, ensure_ascii=False).encode()
        first = gateway.post(key, body)
        assert first.status == 201, (text, first)
        assert upstream.of(key)[0].body == body, text
        escaped = json.dumps({"value ": text, text: 1.0}, ensure_ascii=True, indent=2).encode()
        again = gateway.post(key, escaped)
        assert again.replayed and again.body == first.body, (text, again)
        other = gateway.post(key, json.dumps({text: 1, "value ": text + "x"}).encode())
        assert other.code == "idempotency_payload_mismatch", (text, other)


def test_naughty_strings_are_header_values(t):
    upstream, gateway = t.both(idempotency={"request": {"headers": ["X-Said"]}})
    for text in corpus("naughty-strings/blns.json"):
        key, said = t.key(), [JSON, ("X-Said", as_field(text))]
        first = gateway.post(key, b"{}", said)
        if not fits_field(text):
            assert first.status == 400, (text, first)
            continue
        assert first.status == 201, (text, first)
        assert received(upstream.of(key)[0], "X-Said") == text.encode().strip(b" \t"), text
        assert gateway.post(key, b"{}", said).replayed, text
        other = gateway.post(key, b"{}", [JSON, ("X-Said", as_field(text) + "x")])
        assert other.code == "idempotency_payload_mismatch", (text, other)


def test_naughty_strings_are_keys_or_refused(t):
    upstream, gateway = t.both()
    for text in corpus("naughty-strings/blns.json"):
        before = len(upstream.arrivals)
        answer = gateway.post(as_field(text))
        assert answer.status in (200, 201, 400), (text, answer)
        came = upstream.arrivals[before:]
        assert len(came) == (0 if answer.status == 400 or answer.replayed else 1), (text, answer)
        if came:
            assert received(came[0], "Idempotency-Key") == text.encode().strip(b" \t"), text


def asked(gateway, lines):
    fields = [JSON] + [("Idempotency-Key", line) for line in lines]
    with Connection(gateway.port, 10) as connection:
        connection.send(request_bytes("POST", "/v1/orders", fields, b"{}"))
        return connection.response()


def test_structured_strings_are_keys(t):
    _, gateway = t.both(idempotency={"key": {"syntax": "structured"}})
    for name in ("string", "string-generated"):
        for case in corpus(f"structured-field-tests/{name}.json"):
            if any(c in line for line in case["raw"] for c in "\r\n"):
                continue  # that is no value of one field
            expected = case.get("expected", [""])[0]
            good = (not case.get("must_fail") and len(case["raw"]) == 1
                    and 1 <= len(expected) <= 255 and set(expected) <= VISIBLE)
            answer = asked(gateway, [as_field(line) for line in case["raw"]])
            assert answer.status == (201 if good else 400), (case, answer)
            if good:
                assert asked(gateway, case["raw"]).replayed, case
