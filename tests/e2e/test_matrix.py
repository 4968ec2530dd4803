"""What an upstream may do to a forward, one line a behaviour, under every recovery contract: what the
first client gets, what the record says, what a retry gets, and how often the upstream executed.

`resent` is the second attempt under `resend`: it meets the behaviour after a first attempt that
was cut off, and from then on nothing is given free (CONTRACT 5, 7).
"""
import dataclasses
import os
import re
import ssl
import subprocess
import time
from typing import Callable

import matrix
from harness import (SLOW, Gateway, after, answer, close, commit, merged, never, raw, raw_then_reset,
                     reset, until)

CREATED = b"HTTP/1.1 201 Created\r\n"
SIZED = CREATED + b"Content-Length: 2\r\n\r\n{}"
CHUNKED = CREATED + b"Transfer-Encoding: chunked\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
KILO = b"x" * 2048
LARGE = b"x" * (6 << 20)
CUT, SILENT = "cut off", "too late"


@dataclasses.dataclass
class Row:
    """One behaviour. It commits first, unless done is 0."""
    says: str
    act: Callable | None      # what the upstream does with the request; None: nothing reaches it
    first: object             # a status that is passed on, or (status, code)
    record: str
    cause: str = ""           # what the record gives as its cause holds this
    done: int = 1
    whole: bool = True        # the answer has all of its framing
    kept: bool = True         # its body is stored
    slow: bool = False        # a timeout of the gateway's is what is tried
    body: bytes = b'{"item":"book"}'
    tls: str = ""             # the certificate that the upstream has
    breaks: Callable = lambda upstream: None
    mends: Callable = lambda upstream: None

    @property
    def problem(self):
        return isinstance(self.first, tuple)


def cut(says, act, cause="cut off", **more):
    return Row(says, act, (502, "idempotency_result_unknown"), "unknown", cause, whole=False, **more)


def silent(says, act, cause, **more):
    return Row(says, act, (504, "idempotency_result_unknown"), "unknown", cause, whole=False,
               slow=True, **more)


def unreachable(says, cause, breaks, mends, **more):
    return Row(says, None, (503, "upstream_unreachable"), "released", cause, 0, whole=False,
               breaks=breaks, mends=mends, **more)


def paused(data):
    def act(turn):
        turn.send(data)
        return never()(turn)
    return act


def at_the_door(what):
    """Sets what is done with new connections, before anything is read; kept ones end."""
    def breaks(upstream):
        upstream.door = what
        upstream.drop_connections()
    return breaks


def door_open(upstream):
    upstream.door = None
    upstream.drop_connections()


def never_read(upstream):
    upstream.refuse()
    upstream.door = lambda upstream, sock: upstream.stopped.wait(120) and False
    upstream.accept_again(room=4096)


def read_again(upstream):
    upstream.refuse()
    upstream.door = None
    upstream.accept_again()


def from_the_head(data, done):
    """Answers when it has read the head, and reads no further."""
    def door(upstream, sock):
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(1024)
        if done:
            upstream.commit(re.search(rb"\r\nidempotency-key: *(\S+)", head, re.I)[1].decode())
        sock.sendall(data)
        upstream.stopped.wait(120)
        return False
    return at_the_door(door)


def no_handshake(upstream, sock):
    sock.recv(1)
    sock.close()
    return False


def no_tls(upstream, sock):
    sock.recv(1)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    return False


def no_farewell(data):
    """Over TLS: the connection ends, and TLS is not told."""
    def act(turn):
        turn.send(data)
        os.close(turn.socket.detach())
        return False
    return act


def status(code, record, done, **more):
    cause = {"completed": "", "released": "nothing was done", "unknown": "does not say"}[record]
    fields = [("Location", "/v1/orders/7")] if code in (201, 301) else []
    return Row(f"a_{code}_is_{record}", answer(code, fields=fields), code, record, cause, done, **more)


STATUSES = (
    status(200, "completed", 1),
    status(201, "completed", 1),
    status(202, "completed", 1),
    status(204, "completed", 1),
    status(206, "completed", 1),
    status(301, "completed", 1),
    status(304, "unknown", 0),
    status(307, "released", 0),
    status(400, "released", 0),
    status(402, "completed", 1),
    status(409, "completed", 0),
    status(415, "released", 0),
    status(417, "released", 0),
    status(422, "completed", 0),
    status(429, "released", 0),
    status(500, "unknown", 1),
    status(503, "unknown", 0),
)

ANSWERS = (
    Row("an_interim_answer_is_skipped", raw(INTERIM + SIZED, keep=True), 201, "completed"),
    Row("eight_interim_answers_are_skipped", raw(INTERIM * 8 + SIZED, keep=True), 201, "completed"),
    cut("nine_interim_answers_are_too_many", raw(INTERIM * 9 + SIZED), "too many interim"),
    cut("an_interim_answer_is_no_answer", raw(INTERIM)),
    silent("an_interim_answer_and_then_silence_is_unknown", paused(INTERIM), "paused"),
    cut("a_101_that_nobody_asked_for_is_unknown",
        raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), "101"),
    Row("trailers_are_dropped", raw(CHUNKED + b"Trailer: ETag\r\n\r\n2\r\n{}\r\n0\r\nETag: \"t\"\r\n\r\n",
                                    keep=True), 201, "completed"),
    Row("bytes_behind_an_answer_are_not_its_own", raw(SIZED + b"HTTP/1.1 500 X\r\n\r\n"), 201,
        "completed"),
    Row("an_answer_that_closes_is_whole", answer(201, b"{}", [("Connection", "close")], keep=False),
        201, "completed"),
    Row("an_answer_over_the_limit_is_not_kept", answer(201, KILO), 201, "completed", kept=False),
    Row("an_answer_that_ends_with_its_connection_is_passed_on_and_unknown",
        raw(CREATED + b"\r\n{}"), 201, "unknown", "ended with its connection", whole=False),
    Row("a_refusal_that_ends_with_its_connection_is_passed_on_and_unknown",
        raw(b"HTTP/1.1 400 X\r\n\r\n{}"), 400, "unknown", "ended with its connection", whole=False),
    Row("an_old_answer_without_a_length_is_passed_on_and_unknown",
        raw(b"HTTP/1.0 200 OK\r\n\r\n{}"), 200, "unknown", "ended with its connection", whole=False),
    Row("a_204_of_length_0_is_completed", raw(b"HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n", keep=True),
        204, "completed"),
    cut("a_204_that_has_a_body_is_malformed", raw(b"HTTP/1.1 204 X\r\nContent-Length: 2\r\n\r\n{}"),
        "allows none"),
    Row("a_304_that_names_a_length_has_no_body",
        raw(b"HTTP/1.1 304 X\r\nContent-Length: 500\r\n\r\n", keep=True), 304, "unknown", "does not say"),
    silent("a_length_without_its_body_is_unknown", paused(CREATED + b"Content-Length: 5\r\n\r\n"),
           "paused"),
)

CUTS = (
    cut("a_reset_after_the_commit_is_unknown", reset(), "without an answer"),
    cut("a_close_after_the_commit_is_unknown", close(), "without an answer"),
    cut("a_reset_before_the_commit_is_unknown_too", reset(), "without an answer", done=0),
    cut("half_a_status_line_is_unknown", raw(b"HTTP/1.1 2")),
    cut("a_head_without_its_end_is_unknown", raw(CREATED + b"Content-Length: 0\r\n")),
    cut("half_a_body_and_a_close_is_unknown", raw(CREATED + b"Content-Length: 9\r\n\r\n{}")),
    cut("half_a_body_and_a_reset_is_unknown", raw_then_reset(CREATED + b"Content-Length: 9\r\n\r\n{}")),
    cut("half_a_refusal_is_unknown", raw(b"HTTP/1.1 400 X\r\nContent-Length: 9\r\n\r\n{}"), done=0),
    cut("half_a_chunk_is_unknown", raw(CHUNKED + b"\r\n5\r\nab")),
    cut("chunks_without_the_last_are_unknown", raw(CHUNKED + b"\r\n2\r\n{}\r\n")),
    cut("trailers_without_their_end_are_unknown", raw(CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\r\n")),
    cut("two_lengths_are_malformed", raw(CREATED + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} "),
        "Content-Length"),
    cut("a_length_and_chunks_are_malformed", raw(CHUNKED + b"Content-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        "Transfer-Encoding"),
    cut("what_is_not_http_is_malformed", raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "not HTTP"),
    silent("silence_after_the_commit_is_unknown", never(), "did not begin in time"),
    silent("an_answer_that_comes_too_late_is_unknown", after(1.5 * SLOW, answer()),
           "did not begin in time"),
    silent("a_pause_in_the_body_is_unknown", paused(CREATED + b"Content-Length: 9\r\n\r\n{}"), "paused"),
    silent("an_upstream_that_never_reads_is_unknown", None, "not taken in time", done=0, body=LARGE,
           breaks=never_read, mends=read_again),
    Row("a_refusal_before_the_body_was_read_is_released", None, 413, "released", "nothing was done", 0,
        body=LARGE, breaks=from_the_head(b"HTTP/1.1 413 X\r\nContent-Length: 2\r\n\r\n{}", 0),
        mends=door_open),
    Row("an_answer_before_the_body_was_read_is_completed", None, 201, "completed",
        body=LARGE, breaks=from_the_head(SIZED, 1), mends=door_open),
)

UNREACHABLE = (
    unreachable("a_refused_connection_is_released", "", lambda upstream: upstream.refuse(),
                lambda upstream: upstream.accept_again()),
    unreachable("a_connection_that_nobody_accepts_is_released", "",
                lambda upstream: upstream.let_nobody_in(), lambda upstream: upstream.let_them_in()),
    unreachable("a_tls_handshake_that_is_cut_is_released", "", at_the_door(no_handshake), door_open,
                tls="right"),
    unreachable("an_upstream_without_tls_is_released", "", at_the_door(no_tls), door_open, tls="right"),
)


def other_certificate(name):
    def breaks(upstream):
        upstream.tls = upstream.identities[name]
        upstream.drop_connections()
    return breaks


TLS = (
    Row("an_answer_over_tls_is_completed", answer(201, b"{}"), 201, "completed", tls="right"),
    cut("a_reset_over_tls_is_unknown", reset(), "without an answer", tls="right"),
    cut("a_close_over_tls_without_a_farewell_is_unknown", no_farewell(b""), "without an answer",
        tls="right"),
    cut("half_a_body_over_tls_is_unknown", no_farewell(CREATED + b"Content-Length: 9\r\n\r\n{}"),
        tls="right"),
    unreachable("a_certificate_of_another_host_is_released", "", other_certificate("another host"),
                other_certificate("right"), tls="right"),
    unreachable("a_certificate_of_another_ca_is_released", "", other_certificate("another ca"),
                other_certificate("right"), tls="right"),
)


# ---------------------------------------------------------------------------- the stage

def identities(t):
    """A CA that the gateway believes, and what servers may have: its file, and contexts by name."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=t.directory)

    def make(name, address):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}",
                "-addext", f"subjectAltName=IP:{address}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{t.directory}/{name}.pem", f"{t.directory}/{name}.key")
        return context
    contexts = {"right": make("right", "127.0.0.1"), "another host": make("host", "127.0.0.2"),
                "another ca": make("ca", "127.0.0.1")}
    believed = f"{t.directory}/believed.pem"
    with open(believed, "w", encoding="utf-8") as out:
        for name in ("right", "host"):
            with open(f"{t.directory}/{name}.pem", encoding="utf-8") as file:
                out.write(file.read())
    return believed, contexts


def by_default(upstream):
    """Does what it is asked for, and tells of what it has done."""
    def act(turn):
        target = turn.arrival.target
        if not target.startswith("/by-key/"):
            return commit(answer(201))(turn)
        return answer(200 if upstream.executed[target[len("/by-key/"):]] else 404, b"{}")(turn)
    return act


def set_up(t, row):
    upstream = t.upstream()
    upstream.default = by_default(upstream)
    orders = {}
    if row.tls:
        believed, upstream.identities = identities(t)
        upstream.tls = upstream.identities[row.tls]
        orders = {"servers": [f"https://127.0.0.1:{upstream.port}"], "tls": {"ca_file": believed},
                  "connect_timeout": f"{int(1000 * SLOW)}ms"}
    if not row.slow:
        orders |= {"first_byte_timeout": "20s", "idle_timeout": "20s", "timeout": "20s"}
    else:
        orders |= {"first_byte_timeout": f"{int(700 * SLOW)}ms", "idle_timeout": f"{int(700 * SLOW)}ms"}
    common = merged(Gateway.IDEMPOTENCY, {"response": {"max_body": "1KiB"}, "lease": "30s",
                                          "request": {"max_body": "8MiB", "body": "raw"}})
    routes = [{"match": f"POST /v1/{name}", "upstream": "orders",
               "idempotency": merged(common, {"operation": f"orders.{name}", **changes})}
              for name, changes in matrix.CONTRACTS.items()]
    return upstream, t.gateway(upstream, routes=routes, top={"upstreams": {"orders": orders}})


class Play:
    """One row under one contract: a client with a key."""

    def __init__(self, t, row, upstream, gateway, contract):
        self.t, self.row, self.upstream, self.gateway = t, row, upstream, gateway
        self.contract, self.key = contract, t.key()
        self.first = self.retry = None
        # Of an attempt after the first only these end the record, and only where they are whole.
        self.stored = row.first == 402 or not row.problem and row.first // 100 == 2
        self.record = row.record
        if not row.whole and row.record == "unknown" and contract == "at_least_once":
            self.record = "released"
        if contract == "resent":
            self.record = "completed" if self.stored and row.whole else "unknown"

    def __str__(self):
        return self.contract

    def ask(self):
        return self.gateway.post(self.key, self.row.body, target=f"/v1/{self.contract}")

    def begin(self):
        """What must have been before the behaviour is met."""
        if self.contract == "resent":
            self.upstream.on(self.key, reset())
            matrix.is_problem(self.ask(), 502, "idempotency_result_unknown", True)
        if self.row.act:
            self.upstream.on(self.key, commit(self.row.act) if self.row.done else self.row.act)

    def meet(self):
        self.first = self.ask()

    def check_first(self):
        row = self.row
        if self.contract == "resent" and self.record == "unknown":
            matrix.is_held(self.first)
        elif row.problem:
            matrix.is_problem(self.first, *row.first, row.first[1] != "upstream_unreachable")
        else:
            matrix.is_passed_on(self.first, row.first, self.record == "completed")
        executed = self.upstream.executed[self.key]
        assert executed == row.done, f"executed {executed} times"

    def check_record(self):
        word, cause, late = matrix.records(self.t, self.key)[-1]
        if self.contract == "lookup" and self.record == "unknown" and self.row.done:
            assert word in ("unknown", "completed"), word  # it may have been looked up by now
            return
        assert word == self.record, (word, cause)
        if self.contract == "resent":
            kind = 2 if self.record == "completed" else 3
            assert late == [(2, 1, 2, 0), (3, kind, 2, 0)], late
        else:
            assert self.row.cause in (cause or ""), cause
            assert late == [], late

    def answer_of_a_retry(self):
        what = matrix.retry_gets(self.record, self.contract, self.row.done)
        return "not kept" if what == "replay" and not self.row.kept else what

    def again(self):
        if self.contract == "resent" and self.record == "unknown":
            time.sleep(1.3)  # between resends there is a gap
        if self.answer_of_a_retry() == "looked up":
            self.retry = matrix.asked_until_known(self.ask)
        else:
            self.retry = self.ask()

    def check_retry(self):
        what, retry, again = self.answer_of_a_retry(), self.retry, self.ask()
        executed, word = self.row.done, self.record
        if what == "held":
            matrix.is_held(retry)
            matrix.is_held(again)
        elif what == "not kept":
            matrix.is_not_kept(retry, self.row.first)
            matrix.is_not_kept(again, self.row.first)
        elif what == "replay":
            matrix.is_replay(retry, self.first)
            matrix.is_replay(again, self.first)
        elif what == "looked up":
            assert retry.replayed and (retry.status, retry.body) == (200, b""), retry
            assert retry.field("Idempotency-Recovered") == "lookup", retry
            matrix.is_replay(again, retry)
            word = "completed"
        else:
            matrix.is_passed_on(retry, 201, True)
            matrix.is_replay(again, retry)
            word, executed = "completed", executed + 1
        released = self.record == "released"
        assert (retry.request_id == self.first.request_id) == (not released), "a release ends a record"
        found = [record[0] for record in matrix.records(self.t, self.key)]
        assert found == (["released"] if released else []) + [word], found
        assert self.upstream.executed[self.key] == executed, self.upstream.executed[self.key]
        attempts = (self.row.act is not None) + (what == "executes") + (self.contract == "resent")
        assert self.upstream.count(self.key) == attempts, "what arrived whole"


def play(t, row):
    upstream, gateway = set_up(t, row)
    plays = [Play(t, row, upstream, gateway, contract) for contract in matrix.CONTRACTS]
    matrix.each(plays, "begin")
    row.breaks(upstream)
    for step in ("meet", "check_first", "check_record"):
        matrix.each(plays, step)
    row.mends(upstream)
    for step in ("again", "check_retry"):
        matrix.each(plays, step)
    if row.record == "unknown" and not row.done:
        until(lambda: gateway.metric("lookups_total", result="not_found"), 10, "a look-up")
        matrix.is_held(plays[-1].ask())


def promise_of(row):
    def test(t):
        play(t, row)
    return test


for _row in (*STATUSES, *ANSWERS, *CUTS, *UNREACHABLE, *TLS):
    assert f"test_matrix_{_row.says}" not in globals(), _row.says
    globals()[f"test_matrix_{_row.says}"] = promise_of(_row)
