"""Answers that the ledger did not take in time: kept on disk, and settled by the next process."""
import glob
import os
import shutil
import subprocess
import time

from harness import ONCEWARD, SLOW, Later, answer, merged, own_postgres, roomy, until

SOON = {"settle_wait": "500ms"}
# A lease that is waited for; PostgreSQL is stopped while the upstream works, and may take as long.
LEASED = {"workers": 1, "ledger": {"timeout": "3s"}, "upstreams": {"orders": {
    "first_byte_timeout": "9s", "timeout": "9s"}}}


def with_spool(t, name="spool", **more):
    spool = os.path.join(t.directory, name)
    top = {"workers": 1, "drain_timeout": "2s", "ledger": {"spool": spool, "timeout": "3s"}}
    return spool, t.gateway(**roomy(top, SOON), **more)


def files(spool, ending="answer"):
    return glob.glob(f"{spool}/*.{ending}")


def answered_while_postgres_is_away(t, upstream, gateway, key):
    """The upstream has done it, and the client is told that nobody knows."""
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.stop("fast")
    gate.open()
    response = first.result()
    assert (response.status, response.code) == (503, "idempotency_result_unknown"), response


def replays(gateway, upstream, key):
    def ask():
        response = gateway.post(key)
        return response if response.replayed else time.sleep(0.1)
    again = until(ask, 20, "a replay")
    assert again.status == 201 and again.json()["id"] == "order-1" and upstream.count(key) == 1


@own_postgres
def test_killed_with_a_kept_answer_a_retry_after_the_restart_replays_it(t):
    upstream = t.upstream()
    spool, gateway = with_spool(t)
    key = t.key()
    answered_while_postgres_is_away(t, upstream, gateway, key)
    until(lambda: len(files(spool)) == 1, what="the answer being kept")
    until(lambda: gateway.metric("unsettled_spooled") == 1 == gateway.metric("unsettled_in_memory"),
          what="the counts")
    assert os.stat(files(spool)[0]).st_mode & 0o777 == 0o600
    gateway.kill()
    t.postgres.start()
    gateway.start()
    replays(gateway, upstream, key)
    until(lambda: not files(spool), what="the file being gone")
    until(lambda: gateway.metric("unsettled_spooled") == 0, what="the count saying so")
    assert not files(spool, "bad")


@own_postgres
def test_the_ledger_comes_back_first_and_the_file_goes(t):
    upstream = t.upstream()
    spool, gateway = with_spool(t)
    key = t.key()
    answered_while_postgres_is_away(t, upstream, gateway, key)
    until(lambda: len(files(spool)) == 1, what="the answer being kept")
    t.postgres.start()
    until(lambda: not files(spool), what="the file being gone")
    replays(gateway, upstream, key)


@own_postgres
def test_ended_while_the_ledger_is_away_what_is_left_is_kept(t):
    upstream = t.upstream()
    spool, gateway = with_spool(t)
    gateway.settings["routes"][0]["idempotency"]["settle_wait"] = "30s"  # longer than the drain
    gateway.put_away()
    gateway.write()
    gateway.start()
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.stop("fast")
    gate.open()
    time.sleep(0.3)
    assert not files(spool)
    gateway.killed = True  # it leaves with work under way
    gateway.term()
    assert gateway.process.wait(20 * SLOW) == 1
    first.thread.join()
    assert len(files(spool)) == 1
    t.postgres.start()
    gateway.start()
    replays(gateway, upstream, key)
    gateway.killed = False


@own_postgres
def test_killed_before_anything_was_kept_the_result_is_unknown(t):
    upstream = t.upstream()
    spool = os.path.join(t.directory, "spool")
    gateway = t.gateway(top=merged(LEASED, {"ledger": {"spool": spool}}),
                        idempotency={"lease": "12s", "settle_wait": "30s"})
    key = t.key()
    gate = upstream.gate(key)
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    t.postgres.stop("fast")
    gate.open()
    time.sleep(0.3)
    gateway.kill()
    first.thread.join()
    t.postgres.start()
    gateway.start()
    gateway.unknown_after_lease(key, 25)
    assert upstream.count(key) == 1 and not files(spool)


@own_postgres
def test_a_file_that_was_cut_is_set_aside_and_the_record_is_unknown(t):
    upstream = t.upstream()
    spool = os.path.join(t.directory, "spool")
    gateway = t.gateway(top=merged(LEASED, {"ledger": {"spool": spool}}),
                        idempotency={"lease": "12s", "settle_wait": "500ms"})
    key = t.key()
    answered_while_postgres_is_away(t, upstream, gateway, key)
    until(lambda: len(files(spool)) == 1, what="the answer being kept")
    gateway.kill()
    with open(files(spool)[0], "r+b") as file:
        file.truncate(100)
    t.postgres.start()
    gateway.start()
    until(lambda: len(files(spool, "bad")) == 1, what="the file being set aside")
    gateway.unknown_after_lease(key, 25)
    assert upstream.count(key) == 1 and not files(spool)
    assert "its checksum does not fit" in gateway.log()


@own_postgres
def test_two_gateways_that_find_the_same_answer_settle_it_once(t):
    upstream = t.upstream()
    spool, gateway = with_spool(t)
    key = t.key()
    answered_while_postgres_is_away(t, upstream, gateway, key)
    until(lambda: len(files(spool)) == 1, what="the answer being kept")
    gateway.kill()
    shutil.copytree(spool, spool + "-other")
    t.postgres.start()
    other_spool, other = with_spool(t, "spool-other")
    gateway.start()
    until(lambda: not files(spool) and not files(other_spool), what="both being settled")
    replays(gateway, upstream, key)
    replays(other, upstream, key)
    assert t.rows("SELECT count(*), (SELECT count(*) FROM onceward.event_late) "
                  "FROM onceward.event") == [["1", "0"]]


def test_a_second_gateway_does_not_start_on_the_same_directory(t):
    t.upstream()
    _, gateway = with_spool(t)
    second = subprocess.run([ONCEWARD, "-c", gateway.file], capture_output=True, text=True,
                            check=False, timeout=30)
    assert second.returncode == 1
    assert "another gateway uses" in second.stderr and "each needs a directory" in second.stderr


@own_postgres
def test_too_many_unsettled_answers_make_new_requests_overloaded(t):
    upstream = t.upstream()
    gateway = t.gateway(**roomy(
        {"workers": 1, "limits": {"in_flight": 12}, "ledger": {"timeout": "3s"}}, {"settle_wait": "300ms"}))
    keys = [t.key() for _ in range(4)]  # a quarter of the limit, and one
    gates = [upstream.gate(key) for key in keys]
    firsts = [Later(lambda key=key: gateway.post(key)) for key in keys]
    for gate in gates:
        gate.arrived()
    t.postgres.stop("fast")
    for gate in gates:
        gate.open()
    assert {first.result().code for first in firsts} == {"idempotency_result_unknown"}
    key = t.key()
    refused = gateway.post(key)
    assert (refused.status, refused.code) == (503, "overloaded"), refused
    assert refused.field("Retry-After") and refused.json()["may_have_executed"] is True
    until(lambda: gateway.admin("/readyz").status == 503, what="it saying that it is not ready")
    t.postgres.start()
    gateway.wait_ready()
    assert until(lambda: gateway.post(key).status == 201, 10, "a new request")
    for each in keys:
        until(lambda each=each: gateway.post(each).replayed, what="its settle")
        assert upstream.count(each) == 1
