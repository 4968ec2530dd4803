"""Equal keys at the same time: one forward, equal answers (CONTRACT 2, 3)."""
import time

from harness import Connection, Later, answer, request_bytes, roomy, tag, together, until


@tag("threads")
def test_50_requests_with_one_key_over_two_gateways_execute_once(t):
    upstream = t.upstream()
    gateways = [t.gateway(upstream, **roomy()) for _ in range(2)]
    for _ in range(3):
        key = t.key()
        results = together([lambda g=gateways[i % 2]: g.post(key) for i in range(50)])
        good = [r for r in results if r.status == 201]
        assert good, results
        assert len({r.body for r in good}) == 1
        assert sum(not r.replayed for r in good) <= 1
        for response in results:
            assert response in good or (response.status, response.code) == (
                503, "idempotency_in_progress"), response
        assert upstream.count(key) == 1
        for gateway in gateways:
            again = gateway.post(key)
            assert again.replayed and again.body == good[0].body


def test_equal_keys_with_different_contents_at_once_execute_once(t):
    upstream = t.upstream()
    gateways = [t.gateway(upstream, **roomy()) for _ in range(2)]
    key = t.key()
    results = together([lambda i=i: gateways[i % 2].post(key, b'{"n":%d}' % i) for i in range(30)])
    assert sorted(r.status for r in results) == [201] + [409] * 29, results
    assert upstream.count(key) == 1


@tag("threads")
def test_a_second_request_waits_for_the_first_and_replays_it(t):
    upstream = t.upstream()
    gateways = [t.gateway(upstream, **roomy(idempotency={"wait": "20s"})) for _ in range(2)]
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateways[0].post(key))
    gate.arrived()
    waiting = [Later(lambda g=g: g.post(key)) for g in gateways for _ in range(5)]
    until(lambda: sum(g.metric("waiters") for g in gateways) == 10, what="ten waiters")
    gate.open()
    answers = [w.result() for w in waiting]
    assert {a.body for a in answers} == {first.result().body} and upstream.count(key) == 1
    assert all(a.replayed for a in answers) and not first.value.replayed


def test_a_wait_that_is_over_is_in_progress(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "300ms"}))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    began = time.monotonic()
    second = gateway.post(key)
    assert 0.25 < time.monotonic() - began < 15, "and not until the first one has its answer"
    assert (second.status, second.code) == (503, "idempotency_in_progress"), second
    assert int(second.field("Retry-After")) >= 1 and second.json()["may_have_executed"] is True
    other = gateway.post(key, b'{"other":1}')
    assert (other.status, other.code) == (409, "idempotency_payload_mismatch"), "also meanwhile"
    gate.open()
    assert first.result().body == gateway.post(key).body and upstream.count(key) == 1


def test_the_status_of_in_progress_is_the_routes(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "0s", "in_progress_status": 409}))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    second = gateway.post(key)
    assert (second.status, second.code) == (409, "idempotency_in_progress")
    gate.open()
    first.result()


def test_a_waiter_never_forwards_even_where_the_first_was_refused(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "20s"}))
    key = t.key()
    gate = upstream.gate(key, answer(400))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    waiting = [Later(lambda: gateway.post(key)) for _ in range(5)]
    until(lambda: gateway.metric("waiters") == 5, what="five waiters")
    gate.open()
    assert first.result().status == 400
    for waiter in waiting:
        assert waiter.result().code == "idempotency_in_progress", waiter.value
    assert upstream.count(key) == 1
    assert gateway.post(key).status == 201, "and now the key is free"


def test_a_waiter_learns_that_the_result_is_unknown(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "20s"}))
    key = t.key()
    gate = upstream.gate(key, answer(500))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    waiter = Later(lambda: gateway.post(key))
    until(lambda: gateway.metric("waiters") == 1, what="a waiter")
    gate.open()
    assert first.result().status == 500
    assert waiter.result().code == "idempotency_result_unknown"


def test_waiters_are_bounded(t):
    upstream, gateway = t.both(**roomy(top={"workers": 1, "limits": {"waiters": 3}},
                                       idempotency={"wait": "20s"}))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    waiting = [Later(lambda: gateway.post(key)) for _ in range(3)]
    until(lambda: gateway.metric("waiters") == 3, what="three waiters")
    more = gateway.post(key)
    assert (more.status, more.code) == (503, "idempotency_in_progress"), more
    gate.open()
    for request in [first] + waiting:
        assert request.result().status == 201


def test_requests_under_way_are_bounded(t):
    upstream, gateway = t.both(**roomy(top={"workers": 1, "limits": {"in_flight": 2}}))
    held = [t.key(), t.key()]
    gates = [upstream.gate(key) for key in held]
    first = [Later(lambda key=key: gateway.post(key)) for key in held]
    for gate in gates:
        gate.arrived()
    more = gateway.post(t.key())
    assert (more.status, more.code) == (503, "overloaded"), more
    for gate in gates:
        gate.open()
    for request in first:
        assert request.result().status == 201
    # A client may have its answer a moment before the gateway counts it as ended.
    until(lambda: gateway.post(t.key()).status == 201, what="room for another")


@tag("threads")
def test_overlapping_keys_in_opposite_order_neither_deadlock_nor_execute_twice(t):
    upstream = t.upstream()
    gateways = [t.gateway(upstream, **roomy(idempotency={"wait": "20s"})) for _ in range(2)]
    for _ in range(4):
        keys = [t.key() for _ in range(40)]
        results = together([lambda k=k: gateways[0].post(k) for k in keys] +
                           [lambda k=k: gateways[1].post(k) for k in reversed(keys)])
        for response in results:
            assert response.status == 201, response
        for i, key in enumerate(keys):
            assert results[i].body == results[79 - i].body and upstream.count(key) == 1
    deadlocks = t.postgres.rows("postgres", "SELECT deadlocks FROM pg_stat_database WHERE "
                                f"datname = '{t.database}'")
    assert deadlocks == [["0"]]


def test_a_hundred_requests_on_one_connection_are_answered_in_order(t):
    upstream, gateway = t.both(**roomy())
    keys = [t.key() for _ in range(100)]
    with Connection(gateway.port) as connection:
        for key in keys:
            upstream.on(key, answer(201, key.encode()))
            connection.send(request_bytes("POST", "/v1/orders", [("Idempotency-Key", key)], b"x"))
        for key in keys:
            assert connection.response().body == key.encode()
    assert all(upstream.count(key) == 1 for key in keys)
