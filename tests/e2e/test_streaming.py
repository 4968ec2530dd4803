"""Answers too large to be held: they go to the client as they come, and have their end when it is true."""
import os
import socket
import threading
import time

from harness import (SLOW, Connection, Cut, Later, answer, own_postgres, raw, raw_then_reset, request_bytes,
                     until)

MIB = 1024 * 1024
BODY = os.urandom(5 * MIB - 4) + b"end."  # which does not end as it would without its last byte
WIDE = {"connect_timeout": "5s", "first_byte_timeout": "20s", "idle_timeout": "20s", "timeout": "60s",
        "queue_timeout": "5s"}
PATIENT = {"top": {"ledger": {"timeout": "20s"}, "upstreams": {"orders": WIDE}},
           "idempotency": {"lease": "80s", "settle_wait": "20s"}}


def chunked(body, status=201, end=b"0\r\n\r\n", fields=b""):
    head = b"HTTP/1.1 %d Whatever\r\nTransfer-Encoding: chunked\r\n%s\r\n" % (status, fields)
    pieces = [body[i:i + 50_000] for i in range(0, len(body), 50_000)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + end


def sized(body, status=201, missing=0):
    head = b"HTTP/1.1 %d Whatever\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body[:len(body) - missing]


def ask(gateway, key, version=b"1.1", kernel=None):
    """A connection that has asked. `kernel`: how much of the answer is taken without being read."""
    connection = Connection(gateway.port)
    if kernel:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kernel)
    text = request_bytes("POST", "/v1/orders", [("Content-Type", "application/json"),
                                                 ("Idempotency-Key", key)], b"{}")
    connection.send(text.replace(b"HTTP/1.1", b"HTTP/" + version, 1))
    return connection


def cut(connection):
    """What comes until the connection ends, which must be no whole answer."""
    connection.ended()
    head, got = connection.buffer.split(b"\r\n\r\n", 1)
    for line in head.split(b"\r\n"):
        if line.startswith(b"Content-Length: "):
            assert len(got) < int(line.split(b" ")[1])
    assert b"Transfer-Encoding" not in head or not got.endswith(b"0\r\n\r\n")
    return got


def not_retained(gateway, upstream, key):
    for _ in range(2):
        told = gateway.post(key, b"{}")
        assert (told.status, told.code) == (410, "idempotency_result_not_retained"), told
        assert told.json()["may_have_executed"] is True and told.json()["original_status"] == 201
    assert upstream.count(key) == 1


def is_unknown(gateway, upstream, key):
    told = gateway.post(key, b"{}")
    assert (told.status, told.code) == (503, "idempotency_result_unknown"), told
    assert upstream.count(key) == 1


def test_an_answer_over_the_limit_arrives_whole_and_its_retries_are_410(t):
    upstream, gateway = t.both(**PATIENT)
    for action in (answer(201, BODY, [("Location", "/v1/orders/7")]), raw(chunked(BODY), keep=True)):
        key = t.key()
        upstream.on(key, action)
        first = gateway.post(key, b"{}")
        assert first.status == 201 and first.body == BODY
        assert first.request_id.startswith("req_") and first.field("Idempotency-Expires")
        assert not first.field("Idempotent-Replayed")
        not_retained(gateway, upstream, key)
    with ask(gateway, t.key()) as connection:  # the connection goes on
        assert connection.response().status == 201


def test_a_large_answer_that_is_no_result_is_streamed_too(t):
    upstream, gateway = t.both(**PATIENT)
    key = t.key()
    upstream.on(key, answer(400, BODY), answer(201, b"{}"))
    refused = gateway.post(key, b"{}")
    assert refused.status == 400 and refused.body == BODY and not refused.field("Idempotency-Expires")
    assert gateway.post(key, b"{}").status == 201, "the key is free again"
    key = t.key()
    upstream.on(key, raw(chunked(BODY, 500)))
    assert gateway.post(key, b"{}").body == BODY
    is_unknown(gateway, upstream, key)
    key = t.key()  # whether it is whole nobody knows
    upstream.on(key, raw(b"HTTP/1.1 201 Created\r\n\r\n" + BODY))
    assert gateway.post(key, b"{}").body == BODY
    is_unknown(gateway, upstream, key)


def all_but(connection, n):
    while len(connection.buffer) < n:
        assert connection.more(), "the connection ended"


def quiet(connection, seconds=0.7):
    """Until nothing comes for so long; what came may have come in several pieces."""
    connection.socket.settimeout(seconds)
    try:
        while connection.more():
            pass
    except TimeoutError:
        connection.socket.settimeout(30 * SLOW)
        return True
    raise AssertionError(f"it was closed behind {connection.buffer[-20:]!r}")


def test_the_end_is_withheld_until_the_settle(t):
    upstream, gateway = t.both(**PATIENT)
    for wire, end in ((sized(BODY), BODY[-1:]), (chunked(BODY), b"0\r\n\r\n")):
        key = t.key()
        gate = upstream.gate(key, raw(wire, keep=True))
        with ask(gateway, key) as connection:
            gate.arrived()
            lock = t.lock("event", "SHARE")
            gate.open()
            while BODY[-30:-1] not in connection.buffer:
                assert connection.more()
            assert quiet(connection)
            assert not connection.buffer.endswith(end), "the end came before the settle"
            lock.close()
            assert connection.response().body == BODY
        not_retained(gateway, upstream, key)


@own_postgres
def test_a_settle_that_fails_cuts_the_answer_off(t):
    upstream, gateway = t.both(top={"workers": 1, "ledger": {"timeout": "3s"},
                                    "upstreams": {"orders": WIDE}},
                               idempotency={"lease": "80s", "settle_wait": "1s"})
    for wire in (sized(BODY), chunked(BODY)):
        key = t.key()
        gate = upstream.gate(key, raw(wire, keep=True))
        with ask(gateway, key) as connection:
            gate.arrived()
            t.postgres.stop()
            gate.open()
            assert len(BODY) - 1 <= len(cut(connection)), "all but the end"
        t.postgres.start()

        def told():
            response = gateway.post(key, b"{}")
            return response if response.status == 410 else None
        until(told, 20, "the settle that went on in the background")
        not_retained(gateway, upstream, key)


def test_an_upstream_that_cuts_off_cuts_the_client_off(t):
    upstream, gateway = t.both(**PATIENT)
    for action in (raw(sized(BODY, missing=1)), raw(chunked(BODY, end=b"")),
                   raw_then_reset(sized(BODY, missing=MIB)), raw(chunked(BODY, end=b"zz\r\n"))):
        key = t.key()
        upstream.on(key, action)
        with ask(gateway, key) as connection:
            assert cut(connection)
        is_unknown(gateway, upstream, key)
    assert "the answer was cut off" in gateway.log()


def test_a_client_that_leaves_in_the_middle_changes_nothing(t):
    upstream, gateway = t.both(**PATIENT)
    for leave in (Connection.close, Connection.reset):
        for wire in (sized(BODY), chunked(BODY)):
            key = t.key()
            upstream.on(key, raw(wire, keep=True))
            connection = ask(gateway, key)
            connection.take(10_000)
            leave(connection)
            until(lambda: gateway.post(key, b"{}").status == 410, 10, "the settle")
            not_retained(gateway, upstream, key)


def test_http_1_0_is_streamed_only_where_its_end_can_be_withheld(t):
    upstream, gateway = t.both(**PATIENT)
    key = t.key()
    upstream.on(key, answer(201, BODY))
    with ask(gateway, key, b"1.0") as connection:
        response = connection.response()
        assert response.body == BODY and response.field("Content-Length") == str(len(BODY))
    not_retained(gateway, upstream, key)
    key = t.key()
    upstream.on(key, raw(chunked(BODY), keep=True))
    with ask(gateway, key, b"1.0") as connection:
        response = connection.response()
        assert response.body == BODY and response.field("Content-Length") == str(len(BODY))
    key = t.key()
    upstream.on(key, raw(sized(BODY, missing=10)))
    with ask(gateway, key, b"1.0") as connection:
        assert connection.response().code == "idempotency_result_unknown"


def memory(gateway):
    with open(f"/proc/{gateway.process.pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def bounded(gateway):
    """Is the build one whose memory says something?"""
    return "asan" not in open(f"/proc/{gateway.process.pid}/maps", encoding="ascii").read()


def test_slow_clients_hold_up_the_upstream_and_not_the_memory(t):
    upstream, gateway = t.both(top={"workers": 1, "client_stall": "60s", "drain_timeout": "60s",
                                    "upstreams": {"orders": WIDE}},
                               idempotency={"lease": "80s", "response": {"max_body": "64KiB"}})
    gateway.post(t.key())
    before = memory(gateway)
    keys = [t.key() for _ in range(50)]
    for key in keys:
        upstream.on(key, raw(sized(BODY * 2), keep=True))
    connections = [ask(gateway, key, kernel=65536) for key in keys]
    for connection in connections:
        connection.take(1000)
    time.sleep(1)
    if bounded(gateway):
        assert memory(gateway) - before < 60 * MIB, (memory(gateway) - before) // MIB
    assert gateway.post(t.key()).status == 201, "others go on"
    readers = [Later(lambda c=c: c.ended() and len(c.buffer)) for c in connections[:25]]
    for connection in connections[25:]:
        connection.close()
    with ask(gateway, t.key()) as connection:
        assert connection.response().status == 201
    for key in keys[25:]:
        until(lambda key=key: gateway.post(key, b"{}").status == 410, 30, "the settle")
    gateway.term()
    for reader in readers:
        assert reader.result(60) > 10 * MIB - 1000, "a drain waits for streams"


def test_a_client_that_takes_nothing_is_dropped_and_the_answer_recorded(t):
    upstream, gateway = t.both(top={"client_stall": "1s", "upstreams": {"orders": WIDE}},
                               idempotency={"lease": "80s"})
    key = t.key()
    upstream.on(key, answer(201, BODY * 8))
    with ask(gateway, key, kernel=65536) as connection:
        until(lambda: upstream.count(key) == 1, what="it, and no retry, being the one that is forwarded")
        until(lambda: gateway.post(key, b"{}").status == 410, 10, "the settle")
        assert len(cut(connection)) < len(BODY) * 8
    not_retained(gateway, upstream, key)


def test_a_client_may_not_use_up_the_time_of_the_forward(t):
    upstream, gateway = t.both(top={"upstreams": {"orders": {**WIDE, "timeout": "12s"}}},
                               idempotency={"lease": "30s"})
    key = t.key()
    upstream.on(key, answer(201, BODY * 8))
    with ask(gateway, key, kernel=65536) as connection:
        until(lambda: upstream.count(key) == 1, what="it, and no retry, being the one that is forwarded")
        began = time.monotonic()
        with_end = threading.Event()

        def sip():  # never stalled, and far too slow
            while not with_end.is_set():
                try:
                    connection.socket.recv(4096)
                except OSError:
                    return
                time.sleep(0.2)
        reader = Later(sip)
        until(lambda: gateway.post(key, b"{}").status == 410, 15, "the settle")
        assert time.monotonic() - began < 12
        with_end.set()
        reader.result()
    not_retained(gateway, upstream, key)


# --- what passes through

def get(gateway, target="/plain/x", version=b"1.1"):
    connection = Connection(gateway.port)
    connection.send(request_bytes("GET", target).replace(b"HTTP/1.1", b"HTTP/" + version, 1))
    return connection


def many(turn, total=200):
    turn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (total * MIB))
    for _ in range(total):
        turn.send(BODY[:MIB])
    return True


def test_what_passes_through_is_streamed_with_bounded_memory(t):
    upstream, gateway = t.both(**PATIENT)
    get(gateway).response()
    before = memory(gateway)
    upstream.on("/plain/x", many)
    with get(gateway) as connection:
        got, highest = 0, 0
        while got < 200 * MIB:
            assert connection.more()
            got += len(connection.buffer)
            connection.buffer = b""
            if got % (16 * MIB) < 65536:
                highest = max(highest, memory(gateway))
    if bounded(gateway):
        assert highest - before < 20 * MIB, (highest - before) // MIB


def test_events_pass_through_one_by_one(t):
    upstream, gateway = t.both(top={"upstreams": {"orders": {**WIDE, "timeout": "1s"}}},
                               idempotency={"lease": "20s"})
    more = threading.Semaphore(0)

    def events(turn):
        turn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n")
        for i in range(5):
            assert more.acquire(timeout=20 * SLOW)
            turn.send(b"9\r\ndata: %d\n\n\r\n" % i)
        turn.send(b"0\r\n\r\n")
        return True
    upstream.on("/plain/x", events)
    with get(gateway) as connection:
        while connection.line():
            pass
        took = []
        for i in range(5):
            began = time.monotonic()
            more.release()
            assert connection.line() == b"9" and connection.take(11) == b"data: %d\n\n\r\n" % i
            took.append(time.monotonic() - began)
            time.sleep(0.4)  # longer than `timeout` in all
        assert connection.line() == b"0"
        assert min(took) < 0.2, "an event waits for nobody, though a machine may"


def test_what_is_cut_off_while_it_passes_is_cut_off_for_the_client(t):
    upstream, gateway = t.both(**PATIENT)
    for wire in (sized(BODY, 200, missing=1), chunked(BODY, 200, end=b"")):
        upstream.on("/plain/x", raw(wire))
        with get(gateway) as connection:
            assert cut(connection)
    upstream.on("/plain/x", raw_then_reset(chunked(BODY, 200, end=b"")))
    with get(gateway, version=b"1.0") as connection:
        try:
            while connection.socket.recv(65536):
                pass
            raise AssertionError("no reset")
        except ConnectionResetError:
            pass


def test_a_client_that_resets_ends_what_passes_and_one_that_is_only_done_writing_does_not(t):
    upstream, gateway = t.both(**PATIENT)
    ended = threading.Event()

    def listen(turn):
        turn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        turn.socket.settimeout(20 * SLOW)
        if not turn.socket.recv(1):
            ended.set()
        return False
    upstream.on("/plain/x", listen)
    connection = get(gateway)
    while b"one" not in connection.buffer:
        assert connection.more()
    connection.reset()
    assert ended.wait(10 * SLOW), "the upstream's connection is closed"
    gate = upstream.gate("/plain/y", answer(200, b"two"))
    with get(gateway, "/plain/y") as connection:
        gate.arrived()
        connection.socket.shutdown(1)
        time.sleep(1.5)
        gate.open()
        assert connection.response().body == b"two"
