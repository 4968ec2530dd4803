"""kill -9 of the gateway at each moment: never two executions, and what is not known is said."""
import contextlib
import itertools
import os
import random
import signal
import threading
import time

from harness import RESERVE, SETTLE, SLOW, Connection, Later, answer, request_bytes, tag, together, until


def send(gateway, key):
    """A request whose client will not get an answer."""
    connection = Connection(gateway.port)
    connection.send(request_bytes("POST", "/v1/orders", [
        ("Idempotency-Key", key), ("Content-Type", "application/json")], b'{"item":"book"}'))
    return connection


def end_of(gateway, key):
    """The first answer that tells one: what a killed gateway had locked may still be locked."""
    def ask():
        response = gateway.post(key)
        wait = response.code in ("idempotency_in_progress", "ledger_unavailable")
        return None if wait else response
    return until(ask, 20, "an end")


def test_killed_before_the_reservation_the_key_is_as_new_or_unknown(t):
    upstream, gateway = t.both(idempotency={"lease": "4500ms"})
    key = t.key()
    lock = t.lock("key")
    with send(gateway, key):
        until(lambda: t.blocked(RESERVE), what="the reservation waiting for the lock")
        gateway.kill()
    lock.close()
    assert upstream.count(key) == 0
    gateway.start()
    response = end_of(gateway, key)
    assert response.status == 201 or response.code == "idempotency_result_unknown", response
    assert upstream.count(key) == (response.status == 201)


def test_killed_between_reservation_and_send_the_record_becomes_unknown(t):
    upstream, gateway = t.both(top={"workers": 1, "upstreams": {"orders": {
        "max_connections": 1, "queue_timeout": "6s", "first_byte_timeout": "6s", "timeout": "6s"}}},
        idempotency={"lease": "13s"})
    busy, key = t.key(), t.key()
    gate = upstream.gate(busy)
    with contextlib.ExitStack() as clients:
        clients.enter_context(send(gateway, busy))
        gate.arrived()
        clients.enter_context(send(gateway, key))
        until(lambda: t.records() == 2, what="both being reserved")
        time.sleep(0.1)
        gateway.kill()
    gate.open()
    gateway.start()
    for each, arrivals in ((key, 0), (busy, 1)):
        assert gateway.unknown_after_lease(each, 25).status == 503
        assert upstream.count(each) == arrivals


def test_killed_while_the_upstream_works_the_record_becomes_unknown(t):
    upstream, gateway = t.both(idempotency={"lease": "12s"})  # longer than a start takes
    key = t.key()
    gate = upstream.gate(key)
    with send(gateway, key):
        gate.arrived()
        gateway.kill()
    gate.open()
    gateway.start()
    again = gateway.post(key)
    assert again.code == "idempotency_in_progress", "the lease is not over"
    unknown = gateway.unknown_after_lease(key, 25)
    assert unknown.status == 503 and unknown.json()["may_have_executed"] is True
    assert unknown.request_id == again.request_id and upstream.count(key) == 1
    other = gateway.post(key, b'{"other":1}')
    assert (other.status, other.code) == (409, "idempotency_payload_mismatch")


def test_a_record_whose_gateway_died_comes_onto_the_attention_list(t):
    upstream, gateway = t.both(idempotency={"lease": "4500ms"})
    key = t.key()
    gate = upstream.gate(key)
    with send(gateway, key):
        gate.arrived()
        gateway.kill()
    gate.open()
    gateway.start()
    until(lambda: t.rows(f"SELECT state FROM onceward.attention WHERE "
                         f"convert_from(key, 'UTF8') = '{key}'"), 20, "the sweep finding it")


def test_killed_before_the_answer_is_settled_it_never_executes_again(t):
    upstream, gateway = t.both(idempotency={"lease": "4500ms"})
    key = t.key()
    gate = upstream.gate(key)
    with send(gateway, key):
        gate.arrived()
        lock = t.lock("event")
        gate.open()
        until(lambda: t.blocked(SETTLE), what="the settle waiting for the lock")
        gateway.kill()
    lock.close()
    gateway.start()
    response = end_of(gateway, key)
    assert response.replayed or response.code == "idempotency_result_unknown", response
    assert upstream.count(key) == 1


def test_killed_with_the_settle_in_postgresqls_hands_it_never_executes_again(t):
    upstream, gateway = t.both(idempotency={"lease": "4500ms"})
    key = t.key()
    gate = upstream.gate(key)
    with send(gateway, key):
        gate.arrived()
        backends = [int(row[0]) for row in t.postgres.rows(
            "postgres", f"SELECT pid FROM pg_stat_activity WHERE datname = '{t.database}' "
                        "AND backend_type = 'client backend'")]
        for pid in backends:
            os.kill(pid, signal.SIGSTOP)
        gate.open()
        time.sleep(0.3)
        gateway.kill()
        for pid in backends:
            os.kill(pid, signal.SIGCONT)
    gateway.start()
    response = end_of(gateway, key)
    assert response.replayed or response.code == "idempotency_result_unknown", response
    assert upstream.count(key) == 1


def test_killed_after_the_settle_a_retry_replays(t):
    upstream, gateway = t.both()
    key = t.key()
    first = gateway.post(key)
    gateway.kill()
    gateway.start()
    again = gateway.post(key)
    assert again.replayed and again.body == first.body and upstream.count(key) == 1


def test_another_gateway_takes_over_what_one_has_settled(t):
    upstream = t.upstream()
    one, two = t.gateway(upstream, idempotency={"lease": "4500ms"}), t.gateway(upstream)
    key, lost = t.key(), t.key()
    first = one.post(key)
    gate = upstream.gate(lost)
    with send(one, lost):
        gate.arrived()
        one.kill()
    gate.open()
    assert two.post(key).body == first.body
    assert two.unknown_after_lease(lost).status == 503 and upstream.count(lost) == 1


@tag("threads")
def test_killed_at_random_under_load_no_key_executes_twice(t):
    """Clients retry each key until they know; gateways die now and then."""
    upstream = t.upstream()
    gateways = [t.gateway(upstream, idempotency={"lease": "4500ms", "wait": "1s"})
                for _ in range(2)]
    upstream.default = lambda turn: (time.sleep(random.random() * 0.03), answer()(turn))[1]
    stop, ends, lock = threading.Event(), {}, threading.Lock()

    def client(number):
        while not stop.is_set():
            key, seen = t.key(), set()
            end = time.monotonic() + 40 * SLOW
            for attempt in itertools.count():
                assert time.monotonic() < end, f"no end of {key}"
                gateway = gateways[(number + attempt) % 2]
                try:
                    response = gateway.post(key, timeout=10)
                except Exception:  # pylint: disable=broad-except
                    time.sleep(0.1)
                    continue
                if response.status == 201:
                    seen.add(response.body)
                    if attempt and random.random() < 0.5:
                        continue  # and once more, for the same answer
                    break
                if response.code == "idempotency_result_unknown":
                    break
                assert response.status == 503, response
                time.sleep(0.1)
            with lock:
                ends[key] = (seen, response)

    clients = [Later(lambda n=n: client(n)) for n in range(8)]
    for _ in range(5):
        time.sleep(1 + random.random())
        victim = random.choice(gateways)
        victim.kill()
        time.sleep(0.2)
        victim.start(ready=False)
    until(lambda: len(ends) > 50, 20, "50 ends")
    stop.set()
    for each in clients:
        each.result(60)
    replayed = 0
    for key, (seen, response) in ends.items():
        assert upstream.count(key) <= 1, key
        assert len(seen) <= 1, (key, seen)
        if response.code != "idempotency_result_unknown":
            assert seen and upstream.count(key) == 1, (key, response)
            replayed += response.replayed
    for gateway in gateways:
        gateway.wait_ready()
    settled = [key for key, (seen, _) in ends.items() if seen]
    for key, again in zip(settled, together([lambda k=k: end_of(gateways[0], k)
                                             for k in settled[:100]])):
        assert {again.body} == ends[key][0], (key, again)
