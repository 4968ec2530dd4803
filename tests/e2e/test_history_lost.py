"""A ledger that has forgotten what it confirmed stops everything until a person has looked."""
import os
import shutil
import time

from harness import own_postgres, until

STOPS = "SELECT reason FROM onceward.stop WHERE ended_at IS NULL AND operation IS NULL"


def asked(gateway, key):
    """The first answer that comes with the ledger: it takes a moment to be back."""
    def ask():
        response = gateway.post(key)
        wait = response.code in ("ledger_unavailable", "idempotency_in_progress")
        return None if wait else response
    return until(ask, what="an answer")


@own_postgres
def test_an_old_copy_that_is_put_back_stops_everything(t):
    upstream, gateway = t.both(top={"workers": 1})
    old = t.key()
    assert gateway.post(old).status == 201
    t.postgres.stop("fast")
    kept = f"{t.postgres.directory}/kept"
    data = f"{t.postgres.directory}/data"
    shutil.copytree(data, kept, copy_function=shutil.copy2)
    if t.postgres.user:
        os.system(f"chown -R {t.postgres.user.pw_name} {kept}")
    t.postgres.start()
    forgotten = t.key()
    assert asked(gateway, forgotten).status == 201
    t.postgres.stop("fast")
    shutil.rmtree(data)
    os.rename(kept, data)
    t.postgres.start()
    until(lambda: t.rows(STOPS) == [["history_lost"]], 10, "the stop")
    until(lambda: "confirmed records are missing" in gateway.log(), what="the log saying it")
    for key in (forgotten, t.key()):
        refused = asked(gateway, key)
        assert (refused.status, refused.code) == (503, "operation_stopped"), refused
        assert refused.json()["may_have_executed"] is True, "a key that looks free may have been used"
    assert asked(gateway, old).replayed, "what is there is told"
    assert upstream.count(forgotten) == 1
    done = t.run("operations", "resume", "--all", "-c", gateway.file, "--reason", "it is known what is missing")
    assert done.returncode == 0, done.stderr
    until(lambda: gateway.post(t.key()).status == 201, 5, "going on")


@own_postgres
def test_a_restart_of_the_server_stops_nothing(t):
    _, gateway = t.both(top={"workers": 1})
    for how in ("fast", "immediate"):
        for _ in range(5):
            assert asked(gateway, t.key()).status == 201
        t.postgres.stop(how)
        t.postgres.start()
    assert asked(gateway, t.key()).status == 201
    time.sleep(0.5)
    assert t.rows(STOPS) == []
