"""PostgreSQL stopped at each moment: nothing is forwarded without it, and nothing is forgotten."""
import time

from harness import (RESERVE, SETTLE, SLOW, Later, answer, merged, own_postgres, roomy, tag, together,
                     until)

SHORT = {"ledger": {"timeout": "1s"}}
HELD = {"ledger": {"timeout": "3s"}}  # where a request must get as far as to the upstream first


def ends(gateway, key, seconds=15, **more):
    """Asks again until the answer is neither that the ledger is away nor in progress."""
    def ask():
        response = gateway.post(key, **more)
        if response.code in ("ledger_unavailable", "idempotency_in_progress"):
            time.sleep(0.1)
            return None
        return response
    return until(ask, seconds, "an end")


def refused(gateway, key, upstream):
    response = gateway.post(key)
    assert (response.status, response.code) == (503, "ledger_unavailable"), response
    assert response.field("Retry-After") and response.json()["may_have_executed"] is True
    assert response.json()["retry"] == "same_key" and upstream.count(key) == 0


@tag("threads")
@own_postgres
def test_without_the_ledger_nothing_is_forwarded_and_it_recovers(t):
    upstream, gateway = t.both(top=SHORT)
    key, done = t.key(), t.key()
    first = ends(gateway, done)
    t.postgres.stop()
    for _ in range(3):
        refused(gateway, key, upstream)
    assert gateway.post(done).code == "ledger_unavailable", "a replay needs it too"
    until(lambda: gateway.admin("/readyz").status == 503, what="it saying that it is not ready")
    assert gateway.admin("/healthz").status == 200
    assert gateway.request("GET", "/plain/x").status == 201, "what is not enforced passes"
    t.postgres.start()
    assert ends(gateway, key).status == 201 and upstream.count(key) == 1
    assert ends(gateway, done).body == first.body
    gateway.wait_ready()


@own_postgres
def test_a_ledger_away_at_the_start_is_waited_for(t):
    upstream = t.upstream()
    t.postgres.stop("fast")
    gateway = t.gateway(upstream, top=SHORT, start=False)
    gateway.start(ready=False).wait_alive()
    assert gateway.admin("/readyz").status == 503
    key = t.key()
    refused(gateway, key, upstream)
    t.postgres.start()
    gateway.wait_ready()
    assert ends(gateway, key).status == 201 and upstream.count(key) == 1


@own_postgres
def test_a_ledger_that_hangs_is_given_up_in_time(t):
    upstream, gateway = t.both(top=SHORT)
    key = t.key()
    gateway.post(t.key())
    t.postgres.pause()
    began = time.monotonic()
    response = gateway.post(key)
    took = time.monotonic() - began
    t.postgres.resume()
    assert (response.status, response.code) == (503, "ledger_unavailable"), response
    assert 0.5 < took < 15, f"{took}: without an end it would wait for as long as PostgreSQL stands still"
    response = ends(gateway, key)
    assert response.status == 201 or response.code == "idempotency_result_unknown", response
    assert upstream.count(key) == (response.status == 201)


@own_postgres
def test_a_reservation_that_won_too_late_is_released_by_its_owner(t):
    upstream, gateway = t.both(top=SHORT, idempotency={"lease": "60s"})
    key = t.key()
    t.postgres.pause()
    assert gateway.post(key).code == "ledger_unavailable"
    t.postgres.resume()
    assert ends(gateway, key, 8).status == 201, "long before the lease is over"
    assert upstream.count(key) == 1


@own_postgres
def test_postgresql_killed_while_reserving_forwards_nothing(t):
    upstream, gateway = t.both(**roomy(top={"ledger": {"timeout": "8s"}}))
    key = t.key()
    t.lock("key")
    first = Later(lambda: gateway.post(key))
    until(lambda: t.blocked(RESERVE), what="the reservation waiting for the lock")
    t.postgres.kill()
    assert first.result().code == "ledger_unavailable" and upstream.count(key) == 0
    t.postgres.start()
    assert ends(gateway, key).status == 201 and upstream.count(key) == 1


@tag("threads")
@own_postgres
def test_an_answer_while_the_ledger_is_away_is_refused_and_settled_later(t):
    upstream, gateway = t.both(**roomy(top=HELD, idempotency={"settle_wait": "1s"}))
    key = t.key()
    gate = upstream.gate(key, answer(201, b'{"the":"answer"}'))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.stop()
    gate.open()
    response = first.result()
    assert (response.status, response.code) == (503, "idempotency_result_unknown"), response
    assert response.json()["may_have_executed"] is True
    assert gateway.metric("unsettled_in_memory") == 1
    t.postgres.start()
    again = ends(gateway, key)
    assert again.replayed and again.body == b'{"the":"answer"}' and upstream.count(key) == 1
    until(lambda: gateway.metric("unsettled_in_memory") == 0, what="all being settled")


@own_postgres
def test_a_ledger_that_comes_back_within_settle_wait_is_not_noticed(t):
    upstream, gateway = t.both(**roomy(top=HELD))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.stop()
    gate.open()
    time.sleep(0.5)
    t.postgres.start()
    response = first.result()
    assert response.status == 201 and not response.replayed, response
    assert gateway.post(key).body == response.body and upstream.count(key) == 1


@own_postgres
def test_postgresql_killed_while_settling_loses_no_answer(t):
    upstream, gateway = t.both(**roomy(top=HELD, idempotency={"settle_wait": "500ms"}))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.lock("event")
    gate.open()
    until(lambda: t.blocked(SETTLE), what="the settle waiting for the lock")
    t.postgres.kill()
    response = first.result()
    assert response.status == 201 or response.code == "idempotency_result_unknown", response
    t.postgres.start()
    again = ends(gateway, key)
    assert again.replayed and b"order-" in again.body and upstream.count(key) == 1


@own_postgres
def test_a_refusal_while_the_ledger_is_away_frees_the_key_later(t):
    upstream, gateway = t.both(**roomy(top=HELD, idempotency={"settle_wait": "500ms"}))
    key = t.key()
    gate = upstream.gate(key, answer(400, b"{}"))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.stop()
    gate.open()
    assert first.result().status in (400, 503)
    t.postgres.start()

    def freed():
        response = gateway.post(key)
        return response.status == 201
    until(freed, 10, "the key being free again")
    assert upstream.count(key) == 2


def test_a_reservation_that_leaves_no_room_in_its_lease_is_given_back(t):
    upstream, gateway = t.both(top={"workers": 1, "ledger": {"timeout": "20s"}},
                               idempotency={"settle_wait": "20s"})
    key = t.key()
    lock = t.lock("key")
    first = Later(lambda: gateway.post(key))
    until(lambda: t.blocked(RESERVE), what="the reservation waiting for the lock")
    time.sleep(1.8)  # a lease is 5 s, and a forward may take 3.5 s
    lock.close()
    response = first.result()
    assert (response.status, response.code) == (503, "ledger_unavailable"), response
    assert response.json()["may_have_executed"] is False and upstream.count(key) == 0
    assert t.rows("SELECT kind FROM onceward.event") == [["4"]]
    assert ends(gateway, key).status == 201 and upstream.count(key) == 1


def test_a_reservation_under_way_when_the_gateway_is_told_to_end_is_finished(t):
    upstream, gateway = t.both(**roomy(top={"workers": 1, "drain_timeout": "60s"}))
    key = t.key()
    lock = t.lock("key")
    first = Later(lambda: gateway.post(key))
    until(lambda: t.blocked(RESERVE), what="the reservation waiting for the lock")
    gateway.term()
    time.sleep(0.3)
    lock.close()
    assert first.result().status == 201 and upstream.count(key) == 1
    assert gateway.process.wait(20 * SLOW) == 0


@own_postgres
def test_a_gateway_that_is_told_to_end_waits_for_the_ledger_to_take_what_is_left(t):
    upstream, gateway = t.both(**roomy(
        top=merged(HELD, {"workers": 1, "drain_timeout": "60s"}), idempotency={"settle_wait": "300ms"}))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.stop("fast")
    gate.open()
    assert first.result().code == "idempotency_result_unknown"
    gateway.term()
    time.sleep(0.5)
    assert gateway.process.poll() is None, "it waits"
    t.postgres.start()
    assert gateway.process.wait(30 * SLOW) == 0
    gateway.start()
    assert ends(gateway, key).replayed and upstream.count(key) == 1


@own_postgres
def test_both_killed_while_the_upstream_works_the_record_is_unknown(t):
    upstream, gateway = t.both(top=SHORT, idempotency={"lease": "5s"})
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.kill()
    gateway.kill()
    gate.open()
    first.thread.join()
    t.postgres.start()
    gateway.start()
    assert gateway.unknown_after_lease(key).status == 503 and upstream.count(key) == 1


@tag("threads")
@own_postgres
def test_postgresql_killed_at_random_under_load_no_key_executes_twice(t):
    upstream, gateway = t.both(
        top=merged(SHORT, {"upstreams": {"orders": {"first_byte_timeout": "9s", "timeout": "9s"}}}),
        idempotency={"settle_wait": "3s", "lease": "12s"})
    keys = [[t.key() for _ in range(60)] for _ in range(8)]
    ended = {}

    def client(mine):
        for key in mine:
            bodies = set()
            give_up = time.monotonic() + 50 * SLOW
            while time.monotonic() < give_up:
                response = gateway.post(key)
                if response.status == 201:
                    bodies.add(response.body)
                    break
                assert response.status == 503, response
                if response.code == "idempotency_result_unknown" and bodies:
                    break
                time.sleep(0.1)
            ended[key] = response

    clients = [Later(lambda mine=mine: client(mine)) for mine in keys]
    for how in ("immediate", "kill", "fast"):
        time.sleep(0.4)
        if how == "kill":
            t.postgres.kill()
        else:
            t.postgres.stop(how)
        time.sleep(0.3)
        t.postgres.start()
    for each in clients:
        each.result(80)
    for key in (key for mine in keys for key in mine):
        assert upstream.count(key) <= 1, key
        assert ended[key].status == 201, (key, ended[key], "the gateway lived: it settles in the end")
    gateway.wait_ready()  # reconnecting backs off to at most 1 s
    for key, again in zip(keys[0], together([lambda k=k: ends(gateway, k) for k in keys[0]])):
        assert again.replayed and again.body == ended[key].body


@own_postgres
def test_synchronous_commit_off_is_no_ledger(t):
    t.rows("ALTER DATABASE ledger SET synchronous_commit = off")
    upstream = t.upstream()
    gateway = t.gateway(upstream, top=SHORT, start=False).start(ready=False)
    gateway.wait_alive()
    time.sleep(0.5)
    refused(gateway, t.key(), upstream)
    assert gateway.admin("/readyz").status == 503


@own_postgres
def test_a_read_only_server_is_no_ledger(t):
    upstream, gateway = t.both(top=SHORT)
    key = t.key()
    t.rows("ALTER DATABASE ledger SET default_transaction_read_only = on")
    t.postgres.stop("fast")
    t.postgres.start()
    time.sleep(0.5)
    refused(gateway, key, upstream)
    t.rows("BEGIN; SET TRANSACTION READ WRITE; "
           "ALTER DATABASE ledger SET default_transaction_read_only = off; COMMIT")
    t.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
           "AND datname = 'ledger'")
    assert ends(gateway, key).status == 201 and upstream.count(key) == 1
