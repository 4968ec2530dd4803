"""Promises of docs/contract.md that belong to no other file."""
import json
import time

from harness import Later, answer, merged, reset, roomy, until

KEPT = [("Content-Type", "application/json"), ("Content-Language", "en"),
        ("Content-Disposition", "inline"), ("Content-Encoding", "identity"),
        ("Content-Location", "/v1/orders/7"), ("Content-Range", "bytes 0-1/2"),
        ("Content-Digest", "sha-256=:AAAA:"), ("Repr-Digest", "sha-256=:BBBB:"),
        ("Location", "/v1/orders/7"), ("ETag", '"7"'), ("Link", "</v1/orders/7>; rel=self"),
        ("Last-Modified", "Mon, 01 Jan 2001 00:00:00 GMT"), ("Vary", "Accept"),
        ("Cache-Control", "private"), ("Retry-After", "7")]
NEVER = [("Set-Cookie", "a=b"), ("Authorization", "Bearer x"), ("WWW-Authenticate", "Basic"),
         ("Proxy-Authenticate", "Basic"), ("Proxy-Status", "x")]


def test_every_answer_of_the_gateways_own_names_its_verdict(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "100ms"}))
    done, cut, busy = t.key(), t.key(), t.key()
    upstream.on(cut, reset())
    gate = upstream.gate(busy)
    gateway.post(done)
    under_way = Later(lambda: gateway.post(busy))
    gate.arrived()
    for response, code in (
            (gateway.post(cut), "idempotency_result_unknown"),
            (gateway.post(cut), "idempotency_result_unknown"),
            (gateway.post(busy), "idempotency_in_progress"),
            (gateway.post(done, b'{"else":1}'), "idempotency_payload_mismatch"),
            (gateway.post(), "idempotency_key_missing"),
            (gateway.post("a,b"), "idempotency_key_invalid"),
            (gateway.post(t.key(), b"{"), "request_body_invalid"),
            (gateway.request("GET", "/nowhere"), "route_not_found"),
            (gateway.request("DELETE", "/v1/orders"), "method_not_allowed"),
            (gateway.request("GET", "/plain//x"), "request_malformed")):
        assert response.field("Idempotency-Verdict") == code, (code, response)
        assert response.field("Cache-Control") == "no-store", code
        assert response.field("Content-Type") == "application/problem+json", code
        problem = response.json()
        assert problem["type"] == f"urn:onceward:problem:{code}" and problem["code"] == code
        assert problem["status"] == response.status and problem["title"] and problem["detail"]
        assert problem["retry"] in ("same_key", "after_fix", "never"), problem
        assert isinstance(problem["may_have_executed"], bool), problem
    gate.open()
    assert under_way.result().field("Idempotency-Verdict") is None, "the upstream's own answer"


def test_what_one_account_has_under_way_is_nothing_to_another(t):
    upstream, gateway = t.both(**roomy(idempotency={"account": "behind"}))
    key = t.key()
    gate = upstream.gate(key)
    ann = Later(lambda: gateway.post(key, fields=[("X-Account", "ann")]))
    gate.arrived()
    bob = gateway.post(key, b'{"else":1}', fields=[("X-Account", "bob")])
    assert bob.status == 201 and not bob.replayed and bob.field("Idempotency-Verdict") is None
    gate.open()
    ann = ann.result()
    assert ann.status == 201 and ann.request_id != bob.request_id and upstream.count(key) == 2


def test_an_exchange_keeps_the_settings_it_began_with(t):
    upstream, gateway = t.both(**roomy())
    key = t.key()
    gate = upstream.gate(key)
    under_way = Later(lambda: gateway.post(key))
    gate.arrived()
    reload(t, gateway, {"outcome": {"store": ["402"], "unknown": ["2xx"]}})
    gate.open()
    assert under_way.result().status == 201
    assert gateway.post(key).replayed, "it was stored by the lists that held when it began"


def test_a_reload_does_not_shorten_what_was_promised(t):
    upstream, gateway = t.both(idempotency={"retention": "1h", "tombstone": "2h"})
    key = t.key()
    first = gateway.post(key)
    promised = t.rows("SELECT expires_at, keep_until FROM onceward.key")
    reload(t, gateway, {"retention": "1s", "tombstone": "1s"})
    time.sleep(1.2)
    again = gateway.post(key)
    assert again.replayed and upstream.count(key) == 1
    assert again.field("Idempotency-Expires") == first.field("Idempotency-Expires")
    assert t.rows("SELECT expires_at, keep_until FROM onceward.key") == promised


def test_a_stop_is_obeyed_by_all_gateways_within_two_seconds(t):
    upstream = t.upstream()
    gateways = [t.gateway(upstream, **roomy()) for _ in range(2)]
    t.rows("SELECT onceward.raise_stop('orders.create', NULL, 'operator', 'a test', 'me')")
    time.sleep(2)
    for each in gateways:
        for _ in range(6):
            assert each.post(t.key()).code == "operation_stopped"
    assert not upstream.arrivals


def test_three_accounts_stopped_for_one_reason_stop_the_operation(t):
    upstream, gateway = t.both(idempotency={"account": "behind"})

    def ask(who):
        return gateway.post(t.key(), fields=[("X-Account", who)])

    def stop(who):
        t.rows(f"SELECT onceward.raise_stop('orders.create', '{who}', 'duplicate_effect', 'x', 'me')")
        until(lambda: ask(who).code == "operation_stopped", what="the stop being obeyed")

    stop("ann")
    stop("bob")
    assert ask("eve").status == 201
    stop("joe")
    until(lambda: ask("eve").code == "operation_stopped", what="the stop being obeyed")
    assert upstream.arrivals


def test_the_usual_fields_are_kept_and_what_is_for_one_answer_only_never(t):
    names = [name for name, _ in NEVER]
    upstream, gateway = t.both(idempotency={"response": {"headers": ["X-Mine"]}})
    for name in names:
        wrong = t.gateway(upstream, idempotency={"response": {"headers": [name]}}, start=False)
        done = t.run("check", "-c", wrong.file)
        assert done.returncode == 1 and f'"{name}" is no field that may be kept' in done.stderr
    key = t.key()
    upstream.on(key, answer(201, b"{}", KEPT[1:] + NEVER + [("X-Mine", "1"), ("X-Other", "2")]))
    first, replay = gateway.post(key), gateway.post(key)
    assert replay.replayed and first.field("X-Other") == "2" and replay.field("X-Other") is None
    for name, value in KEPT + [("X-Mine", "1")]:
        assert first.all(name) == replay.all(name) == [value], name
    assert first.field("Set-Cookie") == "a=b", "the first answer has all"
    for name in names:
        assert replay.field(name) is None, name


def test_a_410_tells_what_is_still_known_of_the_result(t):
    upstream, gateway = t.both(idempotency={"retention": "1s", "tombstone": "1h"})
    key = t.key()
    upstream.on(key, answer(201, b"what-was-said", [("Location", "/v1/orders/7")]))
    gateway.post(key)
    time.sleep(1.3)
    told = gateway.post(key)
    problem = told.json()
    assert (told.status, told.code) == (410, "idempotency_result_not_retained")
    assert problem["original_status"] == 201 and problem["location"] == "/v1/orders/7"
    assert problem["completed_at"].endswith("GMT") and problem["first_seen_at"].endswith("GMT")
    assert problem["retry"] == "never" and b"what-was-said" not in told.body


def test_a_mismatch_tells_the_state_and_neither_content_nor_digest(t):
    upstream, gateway = t.both(idempotency={"response": {"receipt": "body:/id"}})
    key, cut = t.key(), t.key()
    upstream.on(key, answer(201, b'{"id":"what-was-said"}', [("Location", "/where-it-is")]))
    upstream.on(cut, reset())
    for each, state in ((key, "completed"), (cut, "unknown")):
        gateway.post(each, b'{"what":"was-asked"}')
        told = gateway.post(each, b'{"what":"else"}')
        problem = told.json()
        assert told.code == "idempotency_payload_mismatch" and problem["state"] == state, told
        assert problem["first_seen_at"].endswith("GMT") and problem["retry"] == "after_fix"
        for secret in (b"what-was-said", b"was-asked", b"where-it-is"):
            assert secret not in told.body + told.head, secret
        for digest, raw in t.rows("SELECT encode(digest, 'hex'), encode(raw_digest, 'hex') "
                                  "FROM onceward.key"):
            assert digest.encode() not in told.body and raw.encode() not in told.body


def test_who_asks_again_is_told_to_wait_longer_for_what_is_unknown_for_longer(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, reset())
    gateway.post(key)
    waits = []
    for minutes in (0, 5, 30):
        t.rows(";".join(  # an op_id has its time in it; in one transaction, for the sweep's sake
            f"UPDATE onceward.{table} SET op_id = op_id - (onceward.op_id_at(now()) - "
            f"onceward.op_id_at(now() - interval '{minutes} min'))"
            for table in ("key", "op", "event", "attention")))
        told = gateway.post(key)
        assert told.code == "idempotency_result_unknown", told
        waits.append(int(told.field("Retry-After")))
    assert waits[0] in (5, 6) and waits[0] < waits[1] < waits[2] <= 300, waits


def test_retries_of_what_is_under_way_are_not_all_asked_to_come_at_once(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "0s"}))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    told = [gateway.post(key) for _ in range(40)]
    gate.open()
    assert first.result().status == 201
    assert {r.code for r in told} == {"idempotency_in_progress"}
    assert len({r.field("Retry-After") for r in told}) > 1


def test_a_challenge_is_passed_on_and_not_answered(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, answer(401, b"who?", [("WWW-Authenticate", "Basic realm=x")]))
    first = gateway.post(key, fields=[("Authorization", "Basic eDp5")])
    assert first.status == 401 and first.field("WWW-Authenticate") == "Basic realm=x"
    assert len(upstream.arrivals) == 1


def test_an_account_is_asked_for_on_a_route_that_passes_too_where_it_says_so(t):
    upstream, gateway = t.both(routes=[
        {"match": "GET /mine/*", "upstream": "orders", "account": "behind"},
        {"match": "* /*", "upstream": "orders"}])
    refused = gateway.request("GET", "/mine/x")
    assert (refused.status, refused.code) == (401, "account_unauthenticated"), refused
    assert gateway.request("GET", "/mine/x", [("X-Account", "ann")]).status == 201
    assert gateway.request("GET", "/else").status == 201
    assert [a.target for a in upstream.arrivals] == ["/mine/x", "/else"]


def test_the_status_of_a_stop_is_the_routes(t):
    upstream, gateway = t.both(idempotency={"stopped_status": 409})
    t.rows("SELECT onceward.raise_stop('orders.create', NULL, 'operator', 'a test', 'me')")
    told = until(lambda: (r := gateway.post(t.key())).code == "operation_stopped" and r,
                 what="the stop being obeyed")
    assert told.status == 409 and told.field("Retry-After")


def test_what_is_under_way_when_a_stop_comes_ends_as_ever(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "20s"}))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.rows("SELECT onceward.raise_stop('orders.create', NULL, 'operator', 'a test', 'me')")
    until(lambda: gateway.post(t.key()).code == "operation_stopped", what="the stop being obeyed")
    waiter = Later(lambda: gateway.post(key))
    until(lambda: gateway.metric("waiters") == 1, what="a waiter")
    gate.open()
    assert first.result().status == 201
    assert waiter.result().replayed and waiter.value.body == first.value.body
    assert gateway.post(key).replayed and upstream.count(key) == 1


def test_a_late_answer_counts_under_a_stop(t):
    upstream = t.upstream()
    short = {"ledger": {"timeout": "10s"}, "upstreams": {"orders": {
        "connect_timeout": "300ms", "timeout": "5s", "first_byte_timeout": "5s", "queue_timeout": "300ms"}}}
    one, two = (t.gateway(upstream, top=short, idempotency={"lease": "6s", "wait": "0s"})
                for _ in range(2))
    key = t.key()
    gate = upstream.gate(key, answer(201, b'{"late":true}'))
    first = Later(lambda: one.post(key))
    gate.arrived()
    one.pause()
    gate.open()
    two.unknown_after_lease(key, 20)
    t.rows("SELECT onceward.raise_stop('orders.create', NULL, 'operator', 'a test', 'me')")
    until(lambda: two.post(t.key()).code == "operation_stopped", what="the stop being obeyed")
    one.resume()
    first.result()
    replay = until(lambda: (r := two.post(key)).status == 201 and r, what="the late answer deciding")
    assert replay.body == b'{"late":true}' and upstream.count(key) == 1


def test_an_access_line_tells_what_became_of_a_request(t):
    _, gateway = t.both(**roomy())
    key, trace = t.key(), "0af7651916cd43dd8448eb211c80319c"
    fields = [("traceparent", f"00-{trace}-b7ad6b7169203331-01")]
    first = gateway.post(key, b'{"n":1}', fields, target="/v1/orders?q=1")

    def lines():
        return [line for line in gateway.log_lines() if line.get("verdict")]
    until(lambda: len(lines()) == 1, what="its line")  # two workers may write in another order
    gateway.post(key, b'{"n":1}', fields, target="/v1/orders?q=1")
    until(lambda: len(lines()) == 2, what="two lines")
    one, two = lines()
    for line, verdict in ((one, "forwarded"), (two, "replayed")):
        assert line["verdict"] == verdict and line["operation"] == "orders.create", line
        assert line["request_id"] == first.request_id and line["trace_id"] == trace, line
        assert line["status"] == 201 and line["bytes_in"] == 7, line
        assert line["bytes_out"] == len(first.body) and line["ms"] > 0 < line["ms_reserve"], line
        assert line["path"] == "/v1/orders" and len(line["key_hash"]) == 12, line
        assert line["time"].endswith("Z") and line["peer"] == "127.0.0.1", line
        assert key not in json.dumps(line)
    assert one["key_hash"] == two["key_hash"]
    assert one["ms_forward"] > 0 and one["ms_settle"] > 0 and "ms_forward" not in two


def reload(t, gateway, idempotency):
    """The first route of the gateway with these settings, once every thread has taken them up."""
    probe = f"/probe-{t.key()}"
    routes = [merged(route, {"idempotency": idempotency}) if n == 0 else route
              for n, route in enumerate(gateway.settings["routes"])]
    routes.append({"match": f"GET {probe}", "upstream": "orders"})
    gateway.write(merged(gateway.settings, {"routes": routes}))
    gateway.hup()
    until(lambda: all(gateway.request("GET", probe).status == 201 for _ in range(8)), what="the reload")
