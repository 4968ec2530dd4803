"""What is stopped, resumed and adopted, and by whom (CONTRACT 9, 15, 17)."""
import json
import os
import pwd
import time

from harness import SLOW, merged, until
from test_records import ask, audit, command, tokens


def refused(gateway, t, **more):
    """Is a new key refused because the operation is stopped?"""
    response = gateway.post(t.key(), **more)
    return response if response.code == "operation_stopped" else None


def test_a_stop_by_command_is_obeyed_by_all_gateways_until_it_is_resumed(t):
    upstream, first = t.both()
    second = t.gateway(upstream)
    done = t.key()
    first.post(done)
    code, _, error = command(t, first, "operations", "stop", "orders.create", "--reason", "a bug in prices")
    assert code == 0, error
    began = time.monotonic()
    for gateway in (first, second):
        response = until(lambda g=gateway: refused(g, t), 5, "the stop being obeyed")
        assert response.status == 503 and response.field("Retry-After"), response
    assert time.monotonic() - began < 4 * SLOW
    assert first.post(done).replayed, "what is stored is replayed"
    assert first.request("PATCH", "/v1/orders/1", [("Idempotency-Key", t.key()),
                         ("Content-Type", "application/json")], b"{}").status == 201, "others go on"
    code, out, _ = command(t, first, "operations", "list", "--json")
    stops = [o for o in json.loads(out) if o["operation"] == "orders.create"][0]["stops"]
    assert stops[0]["reason"] == "operator" and stops[0]["detail"] == "a bug in prices", stops
    code, out, _ = command(t, first, "operations", "stop", "orders.create", "--reason", "again")
    assert code == 0 and "already" in out
    code, out, _ = command(t, first, "operations", "resume", "orders.create", "--reason", "fixed", "--as", "ada")
    assert code == 0 and "resumed" in out
    for gateway in (first, second):
        until(lambda g=gateway: g.post(t.key()).status == 201, 5, "the operation going on")
    code, out, _ = command(t, first, "operations", "resume", "orders.create", "--reason", "fixed")
    assert code == 0 and "nothing is stopped" in out
    me = pwd.getpwuid(os.getuid()).pw_name
    assert audit(t, "action, who, reason") == [["stop", me, "a bug in prices"], ["resume", "ada", "fixed"]]


def test_a_stop_over_http_may_be_for_one_account(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, top=tokens(t), idempotency={"account": "behind"})
    assert ask(gateway, "POST", "/v1/operations/orders.create/stop", {}).status == 400
    assert ask(gateway, "POST", "/v1/operations/ORDERS/stop", {"reason": "x"}).status == 400
    response = ask(gateway, "POST", "/v1/operations/orders.create/stop", {"reason": "fraud?", "account": "mallory"})
    assert response.status == 200 and response.json()["result"] == "stopped", response
    until(lambda: refused(gateway, t, fields=[("X-Account", "mallory")]), 5, "the stop")
    assert gateway.post(t.key(), fields=[("X-Account", "alice")]).status == 201
    operations = ask(gateway, "GET", "/v1/operations", who="vera").json()["operations"]
    one = [o for o in operations if o["operation"] == "orders.create"][0]
    assert one["identity"] == "the same" and one["stops"][0]["scope"] == "one account"
    assert one["stopped"] == "operator (accounts)", "and not the whole operation"
    assert "mallory" not in json.dumps(operations)
    response = ask(gateway, "POST", "/v1/operations/orders.create/resume", {"reason": "no", "account": "mallory"})
    assert response.json()["result"] == "resumed", response
    until(lambda: gateway.post(t.key(), fields=[("X-Account", "mallory")]).status == 201, 5)
    assert audit(t, "who, action") == [["olga", "stop"], ["olga", "resume"]]


def test_what_concerns_everything_is_resumed_by_all(t):
    _, gateway = t.both()
    t.rows("SELECT onceward.raise_stop(NULL, NULL, 'history_lost', 'x', 'y')")
    until(lambda: refused(gateway, t), 5, "everything being stopped")
    code, out, _ = command(t, gateway, "operations", "list")
    assert code == 0 and "history_lost" in out and "everything" in out, out
    assert command(t, gateway, "operations", "resume", "--reason", "x")[0] == 2
    assert command(t, gateway, "operations", "resume", "orders.create", "--all", "--reason", "x")[0] == 2
    assert command(t, gateway, "operations", "resume", "--all", "--reason", "looked at it")[0] == 0
    until(lambda: gateway.post(t.key()).status == 201, 5, "everything going on")


def test_an_operation_is_adopted_over_http(t):
    upstream, gateway = t.both()
    gateway.post(t.key())
    enforced = gateway.settings["routes"][0]["idempotency"]
    other = t.gateway(upstream, top=merged(tokens(t), {}), routes=[
        {"match": "POST /v2/orders", "upstream": "orders", "idempotency": enforced}], start=False)
    other.start(ready=False).wait_alive()
    until(lambda: refused(other, t, target="/v2/orders"), 5, "the changed operation being stopped")
    one = until(lambda: [o for o in ask(other, "GET", "/v1/operations").json().get("operations", [])
                         if o["operation"] == "orders.create"], 5, "the list")[0]
    assert one["identity"] == "changed", one
    assert ask(other, "POST", "/v1/operations/nothing/adopt", {"reason": "x"}).status == 400
    response = ask(other, "POST", "/v1/operations/orders.create/adopt", {"reason": "moved"})
    assert response.status == 200 and response.json()["result"] == "adopted", response
    other.hup()
    until(lambda: other.post(t.key(), target="/v2/orders").status == 201, 5, "the operation going on")
