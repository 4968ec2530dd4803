"""What goes, when, and what a key that comes back is told then (CONTRACT 12)."""
import time

from harness import SLOW, Later, answer, raw, tag, unhurried, until
from test_records import ask, tokens

SHORT = {"retention": "1s", "tombstone": "2s"}
CUT = raw(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf")
BEHIND = {"account": "behind"}


def looked(t):
    """Behind the first look of a gateway: it takes no notice then of what a test makes older."""
    until(lambda: t.rows("SELECT done_at > '-infinity' FROM onceward.retention WHERE task = 'rows'") == [["t"]],
          25, "the first walk")


def age(t, days=4):
    """All records become some days older."""
    looked(t)
    t.rows(";".join((
                f"SELECT onceward.make_day(d - {days}) FROM (SELECT DISTINCT expires_on AS d FROM onceward.op) AS o",
                f"UPDATE onceward.key SET expires_at = expires_at - interval '{days} d'",
                f"UPDATE onceward.event SET expires_on = expires_on - {days}",
                f"UPDATE onceward.attention SET expires_on = expires_on - {days}",
                f"UPDATE onceward.op SET expires_on = expires_on - {days}, lease_until = lease_until - interval '{days} d'")))


def days_gone(t):
    return t.rows("SELECT count(*) FROM onceward.part WHERE parent <> 'audit' AND over_at < now() - interval '1 d'") == [["0"]]


def not_retained(response):
    assert (response.status, response.code) == (410, "idempotency_result_not_retained"), response
    assert response.json()["may_have_executed"] is True and response.json()["retry"] == "never"
    return response


@tag("threads")
def test_a_key_that_comes_back_gets_410_and_is_new_behind_its_tombstone(t):
    upstream, gateway = t.both(idempotency={**SHORT, "tombstone": "10s"})
    key = t.key()
    assert gateway.post(key).status == 201
    time.sleep(1.1)
    told = not_retained(gateway.post(key)).json()
    assert told["original_status"] == 201
    assert gateway.post(key, body=b"{}").code == "idempotency_payload_mismatch"
    assert upstream.count(key) == 1

    def new():
        response = gateway.post(key)
        return response if response.status == 201 and not response.replayed else not not_retained(response)
    until(new, 40, "the key being new")
    assert upstream.count(key) == 2
    until(lambda: gateway.metric("purged_total") >= 1, what="the count")


def test_a_key_in_flight_is_not_purged_behind_its_tombstone(t):
    upstream, gateway = t.both(**unhurried(idempotency=SHORT))
    key = t.key()
    gate = upstream.gate(key, answer(201, b'{"late":1}'))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    time.sleep(8)
    assert gateway.post(key).code == "idempotency_in_progress"
    assert upstream.count(key) == 1
    gate.open()
    assert first.result().status == 201
    assert upstream.count(key) == 1


@tag("threads")
def test_a_day_goes_while_two_gateways_serve(t):
    upstream, one = t.both()
    two = t.gateway(upstream)
    old = [t.key() for _ in range(20)]
    for key in old:
        assert one.post(key).status == 201
    age(t)
    one.hup()
    two.hup()
    end = time.monotonic() + 3
    while time.monotonic() < end or not days_gone(t):
        key = t.key()
        first = one.post(key)
        replay = two.post(key)
        assert first.status == 201 and replay.replayed and replay.body == first.body
        not_retained(two.post(old[0]))
        assert time.monotonic() < end + 30 * SLOW, "the day does not go"
    for key in old:
        not_retained(one.post(key))
        assert upstream.count(key) == 1
    assert t.rows("SELECT count(*) FROM onceward.audit WHERE action = 'purge' AND detail LIKE '20 records%'") == [["1"]]
    until(lambda: "dropped op and event of" in one.log() + two.log(), what="the line in the log")


def test_an_unknown_result_outlives_its_day_and_can_be_resolved_then(t):
    upstream, gateway = t.both(**unhurried())
    key, stale = t.key(), t.key()
    looked(t)
    upstream.on(key, CUT)
    assert gateway.post(key).code == "idempotency_result_unknown"
    gate = upstream.gate(stale)
    first = Later(lambda: gateway.post(stale))
    gate.arrived()
    gateway.kill()
    gate.open()
    try:
        first.result()
    except Exception:  # pylint: disable=broad-except
        pass
    age(t)
    gateway.start()
    until(lambda: days_gone(t), 45, "the day being gone")
    for k in (key, stale):
        assert gateway.post(k).code == "idempotency_result_unknown"
    for row in t.rows("SELECT op_id, expires_on FROM onceward.attention"):
        assert t.rows(f"SELECT onceward.resolve({row[0]}, '{row[1]}', NULL, 2::int2, 201::int2, "
                      "'Content-Type: application/json'||chr(13)||chr(10), '{\"seen\":1}', NULL, 'seen', 'me', 2::int2, "
                      "3600000, 86400000, 5)".replace("'||chr(13)||chr(10)", "\\015\\012'")) == [["1"]]
    for k in (key, stale):
        replay = gateway.post(k)
        assert (replay.status, replay.body) == (201, b'{"seen":1}') and replay.replayed, replay
        assert upstream.count(k) == 1


def drop_days(t, ahead=3):
    """What retention does, as if it were some days later."""
    step = f"SELECT doing, parent, name FROM onceward.purge_parts(7, {-ahead * 86400000}, 1000000000000, 64, false)"
    while True:
        doing, parent, name = t.rows(step)[0]
        if doing == "2":
            t.rows(f"ALTER TABLE onceward.{parent} DETACH PARTITION onceward.{name} CONCURRENTLY")
        if doing not in ("1", "2", "3"):
            assert doing == "0", doing
            return


def test_an_answer_that_comes_after_its_day_has_gone_is_not_lost(t):
    upstream, gateway = t.both(**unhurried())
    key, cut = t.key(), t.key()
    looked(t)
    gates = [upstream.gate(key, answer(201, b'{"late":1}')), upstream.gate(cut, CUT)]
    first, second = Later(lambda: gateway.post(key)), Later(lambda: gateway.post(cut))
    for gate in gates:
        gate.arrived()
    t.rows("UPDATE onceward.op SET lease_until = now() - interval '1 s'")
    drop_days(t)
    assert t.rows("SELECT count(*) FROM onceward.attention WHERE state = 3 AND slot = 1") == [["2"]]
    assert gateway.post(key).code in ("idempotency_result_unknown", "idempotency_in_progress")
    for gate in gates:
        gate.open()
    response = first.result()
    assert (response.status, response.body) == (201, b'{"late":1}'), response
    replay = gateway.post(key)
    assert (replay.status, replay.body) == (201, b'{"late":1}') and replay.replayed, replay
    assert second.result().code == "idempotency_result_unknown"
    assert gateway.post(cut).code == "idempotency_result_unknown"
    assert (upstream.count(key), upstream.count(cut)) == (1, 1)


def test_purge_says_what_would_go_and_drops_more_than_one_day(t):
    _, gateway = t.both()
    first, second = t.key(), t.key()
    gateway.post(first)
    age(t, 2)
    gateway.post(second)
    age(t, 4)
    said = t.run("purge", "--dry-run", "-c", gateway.file)
    assert said.returncode == 0 and said.stdout.count("op and event of") >= 2, said
    assert not days_gone(t) and t.records() == 2
    t.rows("UPDATE onceward.key SET keep_until = now() - interval '1 s'")
    done = t.run("purge", "-c", gateway.file)
    assert done.returncode == 0 and "purged 2 keys" in done.stdout, done
    assert done.stdout.count(": 1 records") == 2, done
    assert days_gone(t) and t.records() == 0
    assert t.run("purge", "-c", gateway.file).returncode == 0


def test_an_erased_account_leaves_hashes_and_executes_nothing_twice(t):
    upstream, gateway = t.both(idempotency=BEHIND)
    alice, bob = [("X-Account", "alice-of-acme")], [("X-Account", "bob")]
    key, unknown = t.key(), t.key()
    upstream.on(key, answer(201, b'{"secret":"of alice"}', [("Location", "/v1/orders/secret-7")]))
    upstream.on(unknown, CUT)
    assert gateway.post(key, fields=alice).status == 201
    assert gateway.post(key, fields=bob).status == 201
    assert gateway.post(unknown, fields=alice).code == "idempotency_result_unknown"
    command = ("erase", "-c", gateway.file, "--account", "alice-of-acme", "--reason", "case 17")
    said = t.run(*command, "--dry-run")
    assert said.returncode == 0 and "would erase 1 records, and 1 in flight" in said.stdout, said
    assert gateway.post(key, fields=alice).replayed
    done = t.run(*command)
    assert done.returncode == 0 and "erased 1 records\n1 are in flight or unknown" in done.stdout, done
    not_retained(gateway.post(key, fields=alice))
    assert gateway.post(key, fields=alice, body=b"{}").code == "idempotency_payload_mismatch"
    assert gateway.post(key, fields=bob).replayed
    assert upstream.count(key) == 2
    assert t.rows("SELECT count(*) FROM onceward.audit WHERE action = 'erase' AND reason = 'case 17'") == [["1"]]
    for row in t.rows("SELECT op_id, expires_on FROM onceward.attention"):
        t.rows(f"SELECT onceward.resolve({row[0]}, '{row[1]}', NULL, 2::int2, 201::int2, '', 'of alice', NULL, 'seen', "
               "'me', 2::int2, 3600000, 86400000, 5)")
    gateway.hup()
    until(lambda: t.rows("SELECT count(*) FROM onceward.erasure_record") == [["0"]], 15, "the rest being erased")
    not_retained(gateway.post(unknown, fields=alice))
    left = t.rows("SELECT op::text FROM onceward.op UNION ALL SELECT event::text FROM onceward.event "
                  "UNION ALL SELECT event_late::text FROM onceward.event_late UNION ALL SELECT attention::text "
                  "FROM onceward.attention UNION ALL SELECT audit::text FROM onceward.audit")
    for clear in ("alice-of-acme", "of alice", "secret-7", unknown):
        hexed = clear.encode().hex()
        assert not [row for row in left if clear in row[0]], clear
        assert not [row for row in left if hexed in row[0]], clear
    assert upstream.count(unknown) == 1


def test_an_account_is_erased_over_http(t):
    upstream, gateway = t.both(idempotency=BEHIND, top=tokens(t))
    alice, key, cut = [("X-Account", "alice-of-acme")], t.key(), t.key()
    upstream.on(cut, CUT)
    gateway.post(key, fields=alice)
    gateway.post(cut, fields=alice)
    body = {"account": "alice-of-acme", "reason": "case 18"}
    until(lambda: ask(gateway, "GET", "/v1/operations").status == 200, 5, "the ledger being asked")
    assert ask(gateway, "POST", "/v1/accounts/erase", body, who="vera").status == 403
    dry = ask(gateway, "POST", "/v1/accounts/erase", {**body, "dry_run": True})
    assert dry.json() == {"dry_run": True, "erased": 1, "waiting": 1}, dry
    assert gateway.post(key, fields=alice).replayed
    done = ask(gateway, "POST", "/v1/accounts/erase", body)
    assert (done.status, done.json()) == (200, {"dry_run": False, "erased": 1, "waiting": 1}), done
    not_retained(gateway.post(key, fields=alice))
    assert t.rows("SELECT who, reason FROM onceward.audit WHERE action = 'erase'") == [["olga", "case 18"]]
    name = gateway.post(key, fields=alice).request_id
    record = ask(gateway, "GET", f"/v1/records/{name}").json()
    assert record["account"] is None and record["key"] is None, "the hash of nothing is nobody's"
    assert b"alice" not in gateway.log().encode(), "the log names nobody"


def test_wrong_usage_of_purge_and_erase_is_told(t):
    _, gateway = t.both()
    for words in (("erase", "--account", "a"), ("erase", "--reason", "r"), ("purge", "--account", "a"), ("purge", "x")):
        assert t.run(*words, "-c", gateway.file).returncode == 2, words
    long = t.run("erase", "--account", "a" * 256, "--reason", "r", "-c", gateway.file)
    assert long.returncode == 1 and "1 to 255 bytes" in long.stderr
