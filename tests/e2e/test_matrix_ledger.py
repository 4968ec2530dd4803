"""What PostgreSQL may do to the gateway, at each step of a request, under every recovery contract: what
the first client gets, what the record says afterwards, what a retry gets, and how often the
upstream executed. Each test is one fault at one moment; within it all contracts, both kinds of
`on_settle_failure` and four answers of the upstream are played at once.
"""
import dataclasses
import glob
import os
import time
from typing import Callable

import matrix
from harness import (SLOW, Gateway, Gate, Later, answer, commit, lasting, merged, own_postgres, reset, until)

SHORT = {"workers": 2, "drain_timeout": "10s", "ledger": {"timeout": lasting(1)}}
CONTRACTS = ("hold", "resend", "resent", "at_least_once")


# ---------------------------------------------------------------------------- faults

def setting(name, value):
    def begins(t):
        t.rows(f"ALTER SYSTEM SET {name} = {value}")
        t.rows("SELECT pg_reload_conf()")
        until(lambda: t.rows(f"SHOW {name}") == [[value]], what=name)
        time.sleep(0.3)  # other sessions hear of it, too

    def ends(t):
        t.rows(f"ALTER SYSTEM RESET {name}")
        t.rows("SELECT pg_reload_conf()")
    return begins, ends


FAULTS = {
    "is_stopped": (lambda t: t.postgres.stop(), lambda t: t.postgres.start()),
    "is_killed": (lambda t: t.postgres.kill(), lambda t: t.postgres.start()),
    "hangs": (lambda t: t.postgres.pause(), lambda t: t.postgres.resume()),
    "is_read_only": setting("default_transaction_read_only", "on"),
    "is_not_durable": setting("synchronous_commit", "off"),
}


def lock(t):
    """No end of an attempt can be written."""
    t.holder = t.session()
    t.holder.run("BEGIN; LOCK TABLE onceward.event, onceward.event_late IN SHARE MODE;")


def kill_and_start(t):
    until(t.blocked, what="a settle that waits for the lock")
    t.postgres.kill()
    t.postgres.start()


IN_THE_MIDDLE = {
    "is_killed": (lock, kill_and_start),
    "is_slow": (lock, lambda t: t.holder.close()),
}


# ---------------------------------------------------------------------------- the stage

@dataclasses.dataclass
class Ending:
    """What the upstream does in the end, and what that makes of a first attempt."""
    act: Callable
    status: int | None
    done: int
    record: str


ENDINGS = {
    "a result": Ending(answer(201, b'{"the":"answer"}', [("Location", "/v1/orders/7")]), 201, 1,
                       "completed"),
    "a refusal": Ending(answer(400, b'{"no":"good"}'), 400, 0, "released"),
    "an error": Ending(answer(500, b'{"sorry":1}'), 500, 1, "unknown"),
    "no answer": Ending(reset(), None, 1, "unknown"),
}


def gateway_of(t, lease=60, top=None):
    """The upstream may take half of the lease: the rest is for a machine that stands still."""
    orders = dict.fromkeys(("first_byte_timeout", "idle_timeout", "timeout"), lasting(lease / 2))
    top = merged({"upstreams": {"orders": orders}}, top)
    upstream = t.upstreams[0] if t.upstreams else t.upstream()
    upstream.default = commit(answer(201))
    common = merged(Gateway.IDEMPOTENCY, {"settle_wait": "300ms", "lease": lasting(lease), "wait": "0s"})
    routes = [{"match": f"POST /v1/{contract}/{policy}", "upstream": "orders",
               "idempotency": merged(merged(common, matrix.CONTRACTS[contract]), {
                   "operation": f"orders.{contract}.{policy}", "on_settle_failure": policy})}
              for contract in CONTRACTS for policy in ("refuse", "deliver")]
    return upstream, t.gateway(upstream, routes=routes, top=merged(SHORT, top))


class Play:
    """A client with a key, and an upstream that answers when it is told to."""

    def __init__(self, t, upstream, gateway, contract, policy, ending):
        self.t, self.upstream, self.gateway, self.key = t, upstream, gateway, t.key()
        self.contract, self.policy, self.name = contract, policy, ending
        self.ending, self.gate, self.under_way, self.retry = ENDINGS[ending], None, None, None
        self.first = None
        self.executed = self.ending.done
        self.record = self.ending.record
        if ending == "no answer" and contract == "at_least_once":
            self.record = "released"
        if contract == "resent" and ending == "a refusal":
            self.record = "unknown"

    def __str__(self):
        return f"{self.contract}, {self.policy}, {self.name}"

    def ask(self):
        return self.gateway.post(self.key, target=f"/v1/{self.contract}/{self.policy}")

    def begin(self):
        """Until the upstream works on it."""
        if self.contract == "resent":
            self.upstream.on(self.key, reset())
            matrix.is_problem(self.ask(), 502, "idempotency_result_unknown", True)
        self.gate = Gate(commit(self.ending.act) if self.ending.done else self.ending.act)
        self.upstream.on(self.key, self.gate)
        self.under_way = Later(self.ask)
        self.gate.arrived()

    def end(self):
        """The upstream answers, and the ledger does not take it."""
        self.gate.open()
        self.first = self.under_way.result()

    def check_first(self):
        """Of what the ledger does not have the client hears as the route says."""
        first = self.first
        if not self.ending.status and self.contract != "resent":
            matrix.is_problem(first, 502, "idempotency_result_unknown", True)
        elif self.policy == "refuse" or (self.contract == "resent" and self.record == "unknown"):
            matrix.is_held(first)
        else:
            matrix.is_passed_on(first, self.ending.status, False)
            assert first.field("Idempotency-Recorded") == "false", first
            assert first.request_id.startswith("req_"), first

    def refused_meanwhile(self):
        is_away(self.ask())
        assert self.upstream.executed[self.key] == self.ending.done

    def check_record(self):
        """What the ledger says once it is back, without a retry."""
        word, _, late = matrix.records(self.t, self.key)[-1]
        assert word == self.record, word
        if self.contract == "resent":
            kind = 2 if self.record == "completed" else 3
            assert late == [(2, 1, 2, 0), (3, kind, 2, 0)], late
        else:
            assert late == [], late

    def lost(self):
        """Nobody knows any more what the upstream answered; its lease is over."""
        self.record = "stale"

    def again(self):
        self.retry = self.ask()

    def check_retry(self):
        what = {"stale": {"hold": "held"}.get(self.contract, "executes")}.get(
            self.record, matrix.retry_gets(self.record, self.contract, self.ending.done))
        retry, again = self.retry, self.ask()
        if what == "held":
            matrix.is_held(retry)
            matrix.is_held(again)
        elif what == "replay":
            assert retry.replayed and (retry.status, retry.body) == (201, b'{"the":"answer"}'), retry
            assert retry.field("Location") == "/v1/orders/7"
            matrix.is_replay(again, retry)
        else:
            self.executed += 1
            matrix.is_passed_on(retry, 201, True)
            matrix.is_replay(again, retry)
        found = [record[0] for record in matrix.records(self.t, self.key)]
        held = ("stale", "unknown") if self.record == "stale" else ("unknown",)
        assert found[-1] in (held if what == "held" else ("completed",)), found
        assert self.upstream.executed[self.key] == self.executed, self.upstream.executed[self.key]
        arrived = 1 + (what == "executes") + (self.contract == "resent")
        assert self.upstream.count(self.key) == arrived, self.upstream.count(self.key)


def is_away(response):
    matrix.is_told(response, 503, "ledger_unavailable", True)


def all_plays(t, upstream, gateway):
    return [Play(t, upstream, gateway, contract, policy, ending) for contract in CONTRACTS
            for policy in ("refuse", "deliver") for ending in ENDINGS]


def mended(t, gateway, ends):
    ends(t)
    gateway.wait_ready()


# ---------------------------------------------------------------------------- before the reserve, the claim

def before_it_is_begun(t, begins, ends):
    """Fresh keys, and keys of each state: nothing is forwarded, nothing is told, nothing changes."""
    upstream, gateway = gateway_of(t)
    plays = []
    for contract in CONTRACTS:
        for ending in ENDINGS:
            plays.append(Play(t, upstream, gateway, contract, "refuse", ending))
    fresh = [Play(t, upstream, gateway, contract, "refuse", "a result") for contract in CONTRACTS]
    matrix.each(plays, "begin")
    matrix.each(plays, "end")
    begins(t)
    # That a ledger is not durable any more a thread knows from its first commit on.
    noticing = [Play(t, upstream, gateway, "hold", "refuse", "a result") for _ in range(16)]
    for clients in (noticing, plays + fresh):
        for under_way in [Later(client.ask) for client in clients]:
            is_away(under_way.result())
    for play in plays:
        assert upstream.executed[play.key] == play.ending.done, play
    assert not any(upstream.count(play.key) for play in fresh + noticing)
    mended(t, gateway, ends)
    time.sleep(1.5)  # what was asked for meanwhile has been given back
    for play in plays:
        play.retry = answered(play.ask, 20)
    for play in fresh:
        response = answered(play.ask, 20)
        matrix.is_passed_on(response, 201, True)
        matrix.is_replay(play.ask(), response)
        assert upstream.executed[play.key] == 1 == upstream.count(play.key), play
        words = [record[0] for record in matrix.records(t, play.key)]
        assert words[-1] == "completed" and set(words[:-1]) <= {"released"}, words
    matrix.each(plays, "check_retry")


def answered(ask, seconds):
    """Asks until the ledger is there, and nothing of before is under way. Of a claim that came too
    late the gap before the next one has to pass, too."""
    def again():
        response = ask()
        if response.code in ("ledger_unavailable", "idempotency_in_progress"):
            return time.sleep(0.1)
        return response
    return until(again, seconds, "an answer")


# ---------------------------------------------------------------------------- after the answer

def before_it_is_settled(t, begins, ends):
    upstream, gateway = gateway_of(t)
    plays = all_plays(t, upstream, gateway)
    matrix.each(plays, "begin")
    begins(t)
    for step in ("end", "check_first"):
        matrix.each(plays, step)
    gateway.until_metric(len(plays), "unsettled_in_memory")
    if begins is not lock:
        matrix.each(plays[::7], "refused_meanwhile")
    mended(t, gateway, ends)
    until(lambda: gateway.metric("unsettled_in_memory") == 0, 20, "all being settled")
    time.sleep(1.2)  # between resends there is a gap
    for step in ("check_record", "again", "check_retry"):
        matrix.each(plays, step)


# ---------------------------------------------------------------------------- the gateway dies, too

LEASE = 8


def answers_in(spool):
    return glob.glob(f"{spool}/*.answer")


def killed_before_it_is_settled(t, spool):
    """All plays, until their gateway has died with what PostgreSQL had not taken, and lives again."""
    upstream, gateway = gateway_of(t, lease=LEASE, top={"ledger": {"spool": spool}})
    plays = all_plays(t, upstream, gateway)
    matrix.each(plays, "begin")
    t.postgres.stop()
    for step in ("end", "check_first"):
        matrix.each(plays, step)
    sure = [play for play in plays if spool and play.record != "unknown"]
    until(lambda: len(answers_in(spool)) == len(sure), 20, "all being on disk")
    gateway.kill()
    t.postgres.start()
    gateway.start()
    return plays, sure


@own_postgres
def test_matrix_killed_while_postgresql_is_stopped_what_was_spooled_is_settled(t):
    """What is unknown is not kept: that it is says its lease."""
    spool = os.path.join(t.directory, "spool")
    plays, sure = killed_before_it_is_settled(t, spool)
    until(lambda: not answers_in(spool), 20, "all being settled")
    assert not glob.glob(f"{spool}/*.bad")
    matrix.each(sure, "check_record")
    time.sleep(LEASE * SLOW + 1)
    matrix.each([play for play in plays if play not in sure], "lost")
    for step in ("again", "check_retry"):
        matrix.each(plays, step)


@own_postgres
def test_matrix_killed_while_postgresql_is_stopped_what_was_not_spooled_is_unknown(t):
    plays, _ = killed_before_it_is_settled(t, None)
    time.sleep(LEASE * SLOW + 1)
    for step in ("lost", "again", "check_retry"):
        matrix.each(plays, step)


# ---------------------------------------------------------------------------- in the middle of a claim

def unknown_record(t, upstream, gateway):
    play = Play(t, upstream, gateway, "resend", "refuse", "a result")
    upstream.on(play.key, reset())
    matrix.is_problem(play.ask(), 502, "idempotency_result_unknown", True)
    return play


def test_matrix_a_claim_that_comes_too_late_sends_nothing_and_is_given_back(t):
    upstream, gateway = gateway_of(t, top={"ledger": {"timeout": lasting(0.4)}})
    play = unknown_record(t, upstream, gateway)
    lock = t.lock("attention", "SHARE")
    under_way = Later(play.ask)
    until(lambda: t.blocked("onceward.claim"), what="the claim waiting for the lock")
    is_refused = under_way.result()
    assert (is_refused.status, is_refused.code) == (503, "ledger_unavailable"), is_refused
    assert is_refused.json()["may_have_executed"] is True and upstream.count(play.key) == 1
    lock.close()
    time.sleep(1.2)
    # Or PostgreSQL has ended it: a claim waits a second for the record's row.
    assert matrix.records(t, play.key)[-1][2] in ([(2, 1, 2, 0), (3, 3, 2, 0)], [])
    assert upstream.count(play.key) == 1
    matrix.is_passed_on(answered(play.ask, 10), 201, True)
    assert upstream.count(play.key) == 2 and upstream.executed[play.key] == 1


@own_postgres
def test_matrix_postgresql_killed_in_a_claim_sends_nothing(t):
    upstream, gateway = gateway_of(t)
    play = unknown_record(t, upstream, gateway)
    t.lock("attention", "SHARE")
    under_way = Later(play.ask)
    until(lambda: t.blocked("onceward.claim"), what="the claim waiting for the lock")
    t.postgres.kill()
    assert under_way.result().code == "ledger_unavailable" and upstream.count(play.key) == 1
    mended(t, gateway, lambda t: t.postgres.start())
    time.sleep(1.5)
    matrix.is_passed_on(answered(play.ask, 10), 201, True)
    assert upstream.count(play.key) == 2 and upstream.executed[play.key] == 1


@own_postgres
def test_matrix_without_postgresql_a_lease_that_ran_out_begins_nothing_anew(t):
    """at_least_once: that the lease is over only the ledger can say."""
    upstream, gateway = gateway_of(t, lease=6)
    play = Play(t, upstream, gateway, "at_least_once", "refuse", "a result")
    play.begin()
    gateway.kill()
    t.postgres.stop()
    gateway.start(ready=False).wait_alive()
    time.sleep(6 * SLOW + 1)
    for _ in range(3):
        is_away(play.ask())
    assert upstream.count(play.key) == 1
    mended(t, gateway, lambda t: t.postgres.start())
    matrix.is_passed_on(answered(play.ask, 10), 201, True)
    assert upstream.count(play.key) == 2
    assert [record[0] for record in matrix.records(t, play.key)] == ["released", "completed"]


def promise_of(moment, fault):
    @own_postgres
    def test(t):
        moment(t, *fault)
    return test


for _name, _fault in FAULTS.items():
    globals()[f"test_matrix_postgresql_{_name}_before_a_request_nothing_is_sent"] = \
        promise_of(before_it_is_begun, _fault)
    globals()[f"test_matrix_postgresql_{_name}_before_the_settle_no_answer_is_lost"] = \
        promise_of(before_it_is_settled, _fault)
for _name, _fault in IN_THE_MIDDLE.items():
    globals()[f"test_matrix_postgresql_{_name}_in_a_settle_no_answer_is_lost"] = \
        promise_of(before_it_is_settled, _fault)
