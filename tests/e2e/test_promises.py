"""Promises of docs/contract.md that belong to no other file."""
import time

from harness import Later, merged, reset, until


def test_every_answer_of_the_gateways_own_names_its_verdict(t):
    upstream, gateway = t.both(idempotency={"wait": "100ms"})
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
    upstream, gateway = t.both(idempotency={"account": "behind"})
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
    upstream, gateway = t.both()
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
    reload(t, gateway, {"retention": "1s", "tombstone": "1s"})
    time.sleep(1.2)
    again = gateway.post(key)
    assert again.replayed and upstream.count(key) == 1
    assert again.field("Idempotency-Expires") == first.field("Idempotency-Expires")


def test_a_stop_is_obeyed_by_all_gateways_within_two_seconds(t):
    upstream, gateway = t.both()
    gateways = [gateway, t.gateway(upstream)]
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
        until(lambda: ask(who).code == "operation_stopped", 3)

    stop("ann")
    stop("bob")
    assert ask("eve").status == 201
    stop("joe")
    until(lambda: ask("eve").code == "operation_stopped", 3)
    assert upstream.arrivals


def reload(t, gateway, idempotency):
    """The first route of the gateway with these settings, once every thread has taken them up."""
    probe = f"/probe-{t.key()}"
    routes = [merged(route, {"idempotency": idempotency}) if n == 0 else route
              for n, route in enumerate(gateway.settings["routes"])]
    routes.append({"match": f"GET {probe}", "upstream": "orders"})
    gateway.write(merged(gateway.settings, {"routes": routes}))
    gateway.hup()
    until(lambda: all(gateway.request("GET", probe).status == 201 for _ in range(8)), 5, "the reload")
