"""A client that leaves changes nothing about its operation (CONTRACT 2.6)."""
import time

from harness import RESERVE, SETTLE, Connection, Later, request_bytes, roomy, tag, until

FIELDS = [("Content-Type", "application/json")]
BODY = b'{"item":"book"}'


def leaves(t, how, hold):
    """The client leaves at a moment that `hold` makes; the operation completes; a retry replays."""
    upstream, gateway = t.both(**roomy(idempotency={"wait": "20s"}))
    key = t.key()
    connection = Connection(gateway.port)
    head = request_bytes("POST", "/v1/orders", FIELDS + [("Idempotency-Key", key)], BODY)
    release = hold(upstream, key)
    connection.send(head)
    release.reached()
    if how == "reset":
        connection.reset()
    elif how == "closed":
        connection.close()
    else:
        connection.socket.shutdown(1)
    time.sleep(0.2)
    release()
    if how == "half-closed":
        assert connection.response().status == 201, "who only stopped sending still reads"
    until(lambda: upstream.count(key) == 1, what="the execution")
    again = gateway.post(key)
    assert again.status == 201 and again.replayed, again
    assert upstream.count(key) == 1
    assert t.records() == 1


class Lock:
    def __init__(self, t, table):
        self.t, self.session = t, t.lock(table)

    def reached(self):
        until(lambda: self.t.blocked(RESERVE), what="the gateway waiting for the lock")

    def __call__(self):
        self.session.close()


class AtUpstream:
    def __init__(self, upstream, key):
        self.gate = upstream.gate(key)

    def reached(self):
        self.gate.arrived()

    def __call__(self):
        self.gate.open()


def test_a_client_that_leaves_while_its_key_is_reserved(t):
    leaves(t, "closed", lambda upstream, key: Lock(t, "key"))


def test_a_client_that_resets_while_its_key_is_reserved(t):
    leaves(t, "reset", lambda upstream, key: Lock(t, "key"))


@tag("threads")
def test_a_client_that_leaves_while_the_upstream_works(t):
    leaves(t, "closed", AtUpstream)


def test_a_client_that_resets_while_the_upstream_works(t):
    leaves(t, "reset", AtUpstream)


def test_a_client_that_half_closes_still_gets_its_answer(t):
    leaves(t, "half-closed", AtUpstream)


@tag("threads")
def test_a_client_that_leaves_while_its_answer_is_settled(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "20s"}))
    key = t.key()
    gate = upstream.gate(key)
    connection = Connection(gateway.port)
    connection.send(request_bytes("POST", "/v1/orders", FIELDS + [("Idempotency-Key", key)], BODY))
    gate.arrived()
    lock = t.lock("event")
    gate.open()
    until(lambda: t.blocked(SETTLE), what="the settle waiting for the lock")
    connection.reset()
    time.sleep(0.2)
    lock.close()
    again = gateway.post(key)
    assert again.status == 201 and again.replayed and upstream.count(key) == 1


def test_a_client_that_leaves_before_its_body_is_there_leaves_nothing(t):
    upstream, gateway = t.both()
    key = t.key()
    head = request_bytes("POST", "/v1/orders", FIELDS + [("Idempotency-Key", key)], BODY)
    for part in (head[:20], head[:-len(BODY)], head[:-1]):
        for leave in ("close", "reset"):
            connection = Connection(gateway.port)
            connection.send(part)
            time.sleep(0.05)
            getattr(connection, leave)()
    time.sleep(0.3)
    assert upstream.count(key) == 0 and t.records() == 0
    assert gateway.post(key).status == 201


@tag("threads")
def test_a_waiter_that_leaves_does_not_disturb_the_others(t):
    upstream, gateway = t.both(**roomy(idempotency={"wait": "20s"}))
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    connection = Connection(gateway.port)
    connection.send(request_bytes("POST", "/v1/orders", FIELDS + [("Idempotency-Key", key)], BODY))
    waiter = Later(lambda: gateway.post(key))
    until(lambda: gateway.metric("waiters") == 2, what="two waiters")
    connection.reset()
    time.sleep(0.1)
    gate.open()
    assert first.result().body == waiter.result().body and upstream.count(key) == 1


def test_the_next_request_on_a_connection_waits_for_the_first(t):
    upstream, gateway = t.both(**roomy())
    keys = [t.key(), t.key()]
    gates = [upstream.gate(key) for key in keys]
    with Connection(gateway.port) as connection:
        for key in keys:
            connection.send(request_bytes("POST", "/v1/orders",
                                          FIELDS + [("Idempotency-Key", key)], BODY))
        gates[0].arrived()
        time.sleep(0.2)
        assert upstream.count(keys[1]) == 0
        gates[0].open()
        gates[1].arrived()
        gates[1].open()
        assert connection.response().status == connection.response().status == 201
