"""Records for people: what is unknown is found, looked at and resolved (CONTRACT 6, 15, 17)."""
import hashlib
import json
import os
import time

from harness import SLOW, Later, after, answer, own_postgres, request, together, unhurried, until

CUT = ("cut",)


def tokens(t):
    """Two tokens, and the settings that name their file."""
    file = os.path.join(t.directory, "admin.tokens")
    with open(file, "w", encoding="utf-8") as out:
        for name, role in (("vera", "viewer"), ("olga", "operator")):
            out.write(f"{name} {role} {hashlib.sha256(name.encode()).hexdigest()}\n")
    os.chmod(file, 0o600)
    return {"admin": {"tokens_file": file}}


def ask(gateway, method, target, body=None, who="olga", **more):
    fields = [("Authorization", f"Bearer {who}")] if who else []
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    return request(gateway.admin_port, method, target, fields, body, timeout=20,
                   host=f"127.0.0.1:{gateway.admin_port}", **more)


def unknown(gateway, upstream, key=None, **more):
    """A key whose result is not known, and its id."""
    key = key or gateway.stage.key()
    upstream.on(key, answer(500))
    response = gateway.post(key, **more)
    assert response.request_id, response
    return key, response.request_id


def command(t, gateway, *words):
    done = t.run(*words, "-c", gateway.file)
    return done.returncode, done.stdout, done.stderr


def audit(t, columns):
    """What people did, by the audit table; retention notes there what it drops."""
    return t.rows(f"SELECT {columns} FROM onceward.audit WHERE action IN ('stop', 'resume', 'resolve', "
                  "'reconcile', 'reveal', 'operations adopt') ORDER BY id")


def test_an_unknown_record_is_listed_shown_and_resolved_with_its_response(t):
    upstream, gateway = t.both(top=tokens(t))
    key, name = unknown(gateway, upstream)
    page = ask(gateway, "GET", "/v1/records").json()
    assert [r["logical_request_id"] for r in page["records"]] == [name], page
    assert page["records"][0]["state"] == "unknown" and page["next_cursor"] is None
    record = ask(gateway, "GET", f"/v1/records/{name}").json()
    assert record["state"] == "unknown" and record["operation"] == "orders.create"
    assert record["history"][0]["kind"] == "unknown", record
    logged = until(lambda: [line["key_hash"] for line in gateway.log_lines()
                            if line.get("request_id") == name], what="the request's line in the log")
    assert logged == [record["key_hash"]] == [page["records"][0]["key_hash"]], "the log's lines can be found"
    body = b'{"id": 17, "total": 1.10}'
    response = ask(gateway, "POST", f"/v1/records/{name}/resolve",
                   b'{"outcome": "completed", "status": 201, "generation": 1,'
                   b' "headers": {"Location": "/v1/orders/17", "Content-Type": "application/json"},'
                   b' "evidence": "seen in the order book", "receipt": "/v1/orders/17", "body": '
                   + body + b'}')
    assert response.status == 200, response
    assert response.json()["state"] == "completed" and response.json()["source"] == "operator"
    replay = gateway.post(key)
    assert (replay.status, replay.body) == (201, body), replay
    assert replay.field("Location") == "/v1/orders/17" and replay.replayed
    assert replay.field("Idempotency-Resolved") == "operator"
    assert upstream.count(key) == 1
    assert ask(gateway, "GET", "/v1/records").json()["records"] == []
    assert audit(t, "who, action, reason") == [["olga", "resolve", "seen in the order book"]]


def test_what_was_not_executed_is_free_again(t):
    upstream, gateway = t.both(top=tokens(t))
    key, name = unknown(gateway, upstream)
    response = ask(gateway, "POST", f"/v1/records/{name}/resolve",
                   {"outcome": "not_executed", "evidence": "no such order"})
    assert response.status == 200 and response.json()["state"] == "released", response
    upstream.on(key, answer(201))
    assert gateway.post(key).status == 201 and upstream.count(key) == 2


def test_without_a_body_a_resolved_record_is_410_with_its_status(t):
    upstream, gateway = t.both()
    key, name = unknown(gateway, upstream)
    code, out, _ = command(t, gateway, "records", "resolve", name, "--completed", "201",
                           "--evidence", "the bank says so", "--header", "Location: /v1/orders/3")
    assert code == 0 and "completed" in out, out
    response = gateway.post(key)
    assert (response.status, response.code) == (410, "idempotency_result_not_retained"), response
    assert response.json()["original_status"] == 201 and upstream.count(key) == 1


def test_commands_work_while_no_gateway_runs(t):
    upstream, gateway = t.both()
    key, name = unknown(gateway, upstream)
    gateway.term()
    gateway.left()
    code, out, _ = command(t, gateway, "records", "list", "--json")
    assert code == 0 and json.loads(out)["records"][0]["logical_request_id"] == name
    code, out, _ = command(t, gateway, "records", "find", key, "--operation", "orders.create",
                           "--account", "public", "--json")
    assert code == 0 and json.loads(out)["logical_request_id"] == name
    assert key not in out
    code, out, _ = command(t, gateway, "records", "show", name, "--reveal", "--json")
    assert code == 0 and json.loads(out)["key"] == key
    file = os.path.join(t.directory, "body")
    with open(file, "wb") as body:
        body.write(b"\x00bytes\xff")
    code, out, error = command(t, gateway, "records", "resolve", name, "--completed", "200",
                               "--evidence", "seen", "--body", file, "--as", "ada",
                               "--header", "Content-Type: application/octet-stream")
    assert code == 0, error
    gateway.start()
    replay = gateway.post(key)
    assert (replay.status, replay.body) == (200, b"\x00bytes\xff") and upstream.count(key) == 1
    assert ["ada", "resolve"] in audit(t, "who, action")


def test_what_may_not_be_resolved_is_refused_with_what_stands_there(t):
    upstream, gateway = t.both(**unhurried(tokens(t)))
    done = gateway.post(t.key())
    final = {"outcome": "completed", "status": 201, "evidence": "x"}
    response = ask(gateway, "POST", f"/v1/records/{done.request_id}/resolve", final)
    assert (response.status, response.code) == (409, "record_conflict"), response
    assert response.json()["state"] == "completed" and response.json()["source"] == "attempt"
    code, out, error = command(t, gateway, "records", "resolve", done.request_id, "--not-executed",
                               "--evidence", "x")
    assert code == 1 and "completed" in out + error, (out, error)
    key = t.key()
    gate = upstream.gate(key)
    under_way = Later(lambda: gateway.post(key))
    gate.arrived()
    flying = gateway.post(key).request_id
    response = ask(gateway, "POST", f"/v1/records/{flying}/resolve",
                   {"outcome": "not_executed", "evidence": "x"})
    assert response.status == 409 and response.json()["state"] == "in_flight", response
    assert response.json()["lease_until"]
    gate.open()
    assert under_way.result().status == 201
    _, name = unknown(gateway, upstream)
    assert ask(gateway, "POST", f"/v1/records/{name}/resolve", {**final, "generation": 2}).status == 409
    for wrong in ({"status": 201}, {**final, "outcome": "perhaps"}, {**final, "status": 42},
                  {**final, "evidence": ""}, {"outcome": "completed", "status": 201},
                  {**final, "headers": {"Set-Cookie": "a=b"}}, {**final, "headers": {"X-Own": "a"}},
                  {**final, "headers": {"Location": "a\r\nb: c"}}, {**final, "receit": "typo"},
                  {**final, "body": 17}, {**final, "body_base64": "?"}, {**final, "status": 204, "body": "x"},
                  {"outcome": "not_executed", "status": 201, "evidence": "x"},
                  b"{", b"[]", b""):
        response = ask(gateway, "POST", f"/v1/records/{name}/resolve", wrong)
        assert response.status == 400 and response.code, (wrong, response)
    for nobody in ("req_aaaaaaaaaaaaaaaaaaaaaaaaaa", "req_x", "17"):
        response = ask(gateway, "POST", f"/v1/records/{nobody}/resolve", final)
        assert (response.status, response.code) == (404, "record_not_found"), response
    assert ask(gateway, "GET", f"/v1/records/{name}").json()["state"] == "unknown"


def test_an_operators_word_can_be_amended_and_an_answer_cannot(t):
    upstream, gateway = t.both(top=tokens(t))
    key, name = unknown(gateway, upstream)
    one = {"outcome": "completed", "status": 201, "evidence": "first", "body": "one"}
    assert ask(gateway, "POST", f"/v1/records/{name}/resolve", one).status == 200
    assert gateway.post(key).body == b"one"
    two = {**one, "body": "two", "evidence": "second"}
    refused = ask(gateway, "POST", f"/v1/records/{name}/resolve", two)
    assert refused.status == 409 and refused.json()["source"] == "operator", refused
    assert ask(gateway, "POST", f"/v1/records/{name}/resolve", {**two, "amend": 7}).status == 409
    assert gateway.post(key).body == b"one"
    seen = refused.json()["slot"]
    assert ask(gateway, "POST", f"/v1/records/{name}/resolve", {**two, "amend": seen}).status == 200
    assert gateway.post(key).body == b"two" and upstream.count(key) == 1
    assert len(ask(gateway, "GET", f"/v1/records/{name}").json()["history"]) == 3


def test_only_one_of_many_resolvers_wins(t):
    upstream, gateway = t.both(top=tokens(t))
    for _ in range(5):
        key, name = unknown(gateway, upstream)
        results = together([lambda i=i: ask(
            gateway, "POST", f"/v1/records/{name}/resolve",
            {"outcome": "completed", "status": 201, "body": f"{i}", "evidence": "x", "generation": 1})
            for i in range(8)])
        assert all(r.status in (200, 409) for r in results), results
        winner = [i for i, r in enumerate(results) if r.status == 200]
        assert len(winner) == 1, results
        for loser in (r for r in results if r.status == 409):
            assert loser.json()["state"] == "completed" and loser.json()["source"] == "operator", loser
        assert gateway.post(key).body.decode() == str(winner[0])
        # Amending, too: of those who have seen the same result one puts another in its place.
        slot = ask(gateway, "GET", f"/v1/records/{name}").json()["slot"]
        results = together([lambda i=i: ask(
            gateway, "POST", f"/v1/records/{name}/resolve",
            {"outcome": "completed", "status": 201, "body": f"amended {i}", "evidence": "x", "amend": slot})
            for i in range(8)])
        winner = [i for i, r in enumerate(results) if r.status == 200]
        assert len(winner) == 1 and all(r.status in (200, 409) for r in results), results
        assert gateway.post(key).body.decode() == f"amended {winner[0]}"


def test_nothing_is_shown_or_changed_without_a_token_for_it(t):
    upstream, gateway = t.both(top=tokens(t))
    _, name = unknown(gateway, upstream)
    for target in ("/v1/records", f"/v1/records/{name}", "/v1/operations"):
        assert ask(gateway, "GET", target, who=None).status == 401
        assert ask(gateway, "GET", target, who="vera").status == 200
        assert ask(gateway, "POST", target, b"{}").status == 405
    for target in (f"/v1/records/{name}/resolve", "/v1/operations/orders.create/stop"):
        assert ask(gateway, "POST", target, {"reason": "x"}, who="vera").status == 403
    assert ask(gateway, "GET", f"/v1/records/{name}?reveal=1", who="vera").status == 403
    shown = ask(gateway, "GET", f"/v1/records/{name}?reveal=1").json()
    assert shown["account"] == "public"
    assert audit(t, "who, action, about") == [["olga", "reveal", name]]
    bare = t.gateway(upstream)
    response = bare.admin("/v1/records")
    assert response.status == 403 and "admin.tokens_file" in response.json()["detail"]
    assert bare.admin("/metrics").status == 200


def test_pages_of_records_go_on_where_the_last_one_ended(t):
    upstream, gateway = t.both(top=tokens(t))
    names = [unknown(gateway, upstream)[1] for _ in range(7)]
    seen, cursor = [], ""
    while cursor is not None:
        page = ask(gateway, "GET", f"/v1/records?limit=3&operation=orders.create&cursor={cursor}").json()
        seen += [(r["created_at"], r["logical_request_id"]) for r in page["records"]]
        cursor = page["next_cursor"]
    assert sorted(name for _, name in seen) == sorted(names), (seen, names)
    assert [at for at, _ in seen] == sorted(at for at, _ in seen), "the oldest first, as their workers' clocks have it"
    first = ask(gateway, "GET", "/v1/records?limit=3").json()["next_cursor"]
    flipped = ("B" if first[0] != "B" else "C") + first[1:]
    for query in (f"cursor={flipped}", f"cursor={first}&state=unknown", f"cursor={first}&account=x",
                  "cursor=x", "limit=0", "limit=1001", "limit=x", "older_than=5", "state=odd", "stat=x",
                  "limit=1&limit=2", "operation=%ff%", "reveal=2"):
        response = ask(gateway, "GET", f"/v1/records?{query}")
        assert response.status == 400 and response.code == "admin_request_invalid", (query, response)
    assert ask(gateway, "GET", "/v1/records?older_than=1h").json()["records"] == []
    for _ in range(3):
        gateway.post(t.key())
    completed = ask(gateway, "GET", "/v1/records?state=completed&limit=2").json()
    assert len(completed["records"]) == 2
    rest = ask(gateway, "GET", f"/v1/records?state=completed&limit=5&cursor={completed['next_cursor']}").json()
    assert len(rest["records"]) == 1, rest


def test_what_is_in_flight_is_listed(t):
    upstream, gateway = t.both(**unhurried(tokens(t)))
    key = t.key()
    gate = upstream.gate(key)
    under_way = Later(lambda: gateway.post(key))
    gate.arrived()
    page = ask(gateway, "GET", "/v1/records?state=in_flight").json()
    assert [r["state"] for r in page["records"]] == ["in_flight"], page
    gate.open()
    under_way.result()
    assert ask(gateway, "GET", "/v1/records?state=in_flight").json()["records"] == []


def test_a_record_is_found_by_its_key(t):
    upstream, gateway = t.both(top=tokens(t))
    key = t.key()
    name = gateway.post(key).request_id
    who = {"account": "public", "operation": "orders.create", "key": key}
    found = ask(gateway, "POST", "/v1/records/find", who, who="vera")
    assert found.status == 200 and found.json()["logical_request_id"] == name
    assert key.encode() not in found.body and b"public" not in found.body
    assert ask(gateway, "POST", "/v1/records/find", {**who, "key": "other"}).status == 404
    assert ask(gateway, "POST", "/v1/records/find", {"key": key}).status == 400


@own_postgres
def test_with_postgresql_away_people_are_told_so(t):
    upstream, gateway = t.both(top=tokens(t))
    _, name = unknown(gateway, upstream)
    t.postgres.stop()
    response = until(lambda: (lambda r: r if r.status != 200 else None)(ask(gateway, "GET", "/v1/records")), 10)
    assert (response.status, response.code) == (503, "ledger_unavailable"), response
    t.postgres.start()
    until(lambda: ask(gateway, "GET", f"/v1/records/{name}").status == 200, 15, "the ledger being back")


def test_a_report_settles_what_is_unknown(t):
    upstream, gateway = t.both()
    keys = [unknown(gateway, upstream)[0] for _ in range(4)]
    settled = t.key()
    gateway.post(settled)
    file = os.path.join(t.directory, "report.csv")
    with open(file, "w", encoding="utf-8") as out:
        out.write("key,status,receipt,body\r\n")
        out.write(f'{keys[0]},201,r-1,"{{""id"": ""one, and more""}}"\r\n')
        out.write(f"{keys[1]},201,r-2,\r\n{settled},201,,\r\nnobody-knows,201,r-9,\r\n")
    reconcile = ("records", "reconcile", file, "--operation", "orders.create", "--evidence",
                 "report of May", "--json")
    code, out, error = command(t, gateway, *reconcile)
    assert code == 0, error
    counts = {"unknown": 2, "same": 1, "provider_only": 1, "ledger_only": 2}
    assert json.loads(out)["counts"] == counts and not json.loads(out)["applied"]
    assert gateway.post(keys[0]).code == "idempotency_result_unknown", "a dry run"
    code, out, error = command(t, gateway, *reconcile, "--apply")
    assert code == 0 and json.loads(out)["counts"] == counts, error
    replay = gateway.post(keys[0])
    assert (replay.status, replay.body) == (201, b'{"id": "one, and more"}'), replay
    assert gateway.post(keys[1]).status == 410
    code, out, _ = command(t, gateway, *reconcile, "--apply")
    assert json.loads(out)["counts"] == {"same": 3, "provider_only": 1, "ledger_only": 2}, out
    time.sleep(1.1)
    early = ("--apply", "--absent-is-proof", "--as-of", "2020-01-01T00:00:00Z")
    code, out, error = command(t, gateway, *reconcile, *early)
    assert code == 0 and "absent" not in json.loads(out)["counts"], "tried later than the report"
    assert gateway.post(keys[2]).code == "idempotency_result_unknown", "nothing was said of it"
    code, out, error = command(t, gateway, *reconcile, "--apply", "--absent-is-proof", "--as-of",
                               time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    assert code == 0 and json.loads(out)["counts"]["absent"] == 2, (out, error)
    upstream.on(keys[2], answer(201))
    assert gateway.post(keys[2]).status == 201 and upstream.count(keys[2]) == 2
    assert [r[0] for r in audit(t, "action")] == \
        ["resolve"] * 2 + ["reconcile"] * 3 + ["resolve"] * 2 + ["reconcile"]


def test_doubles_in_a_report_are_told_and_left_alone(t):
    upstream, gateway = t.both()
    keys = [unknown(gateway, upstream)[0] for _ in range(3)]
    file = os.path.join(t.directory, "report.jsonl")
    with open(file, "w", encoding="utf-8") as out:
        for key, receipt in ((keys[0], "r-1"), (keys[1], "r-1"), (keys[2], "r-2"), (keys[2], "r-3")):
            out.write(json.dumps({"key": key, "status": 201, "receipt": receipt}) + "\n")
    code, out, _ = command(t, gateway, "records", "reconcile", file, "--operation", "orders.create",
                           "--evidence", "x", "--json", "--apply")
    counts = json.loads(out)["counts"]
    assert code == 1 and counts["doubled_receipt"] == 2 and counts["doubled_key"] == 2, counts
    for key in keys:
        assert gateway.post(key).code == "idempotency_result_unknown"


def test_a_report_of_thousands_is_applied_in_steps(t):
    upstream, gateway = t.both()
    first = unknown(gateway, upstream)[0]
    t.rows("""
        WITH one AS (SELECT * FROM onceward.op LIMIT 1), more AS (
          INSERT INTO onceward.op SELECT op_id + 4096 * n::bigint + 4194304, expires_on, md5(n::text)::uuid, created_at,
            lease_until - interval '1 minute', account, operation, ('k' || n)::bytea, gateway, settings
          FROM one, generate_series(1, 2000) AS n RETURNING *),
        keys AS (INSERT INTO onceward.key SELECT md5(convert_from(key, 'UTF8'))::uuid, op_id, now() + interval '1 day',
            now() + interval '30 days', '', '', 0, 0 FROM more)
        INSERT INTO onceward.attention (created_at, op_id, expires_on, state, slot, key_hash, account, operation, key, cause)
        SELECT created_at, op_id, expires_on, 1, 0, key_hash, account, operation, key, 'lease ran out' FROM more""")
    code, out, _ = command(t, gateway, "records", "list", "--limit", "1000", "--json", "--state", "unknown")
    page = json.loads(out)
    names = [r["logical_request_id"] for r in page["records"]]
    code, out, _ = command(t, gateway, "records", "list", "--limit", "1000", "--json", "--state", "unknown",
                           "--cursor", page["next_cursor"])
    names += [r["logical_request_id"] for r in json.loads(out)["records"]]
    assert len(set(names)) == 2000, len(names)
    file = os.path.join(t.directory, "report.csv")
    with open(file, "w", encoding="utf-8") as out:
        out.write("logical_request_id,receipt\n")
        out.writelines(f"{name},r-{i}\n" for i, name in enumerate(names))
    held = t.lock("attention")  # until the command's session is ended in the middle
    cut = Later(lambda: command(t, gateway, "records", "reconcile", file, "--operation", "orders.create",
                                "--status", "201", "--evidence", "x", "--apply", "--json"))
    until(lambda: t.blocked("reconcile_lines") > 0, 10, "the command waiting")
    t.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%reconcile_lines%' "
           "AND pid <> pg_backend_pid()")
    code, out, error = cut.result()
    held.close()
    assert code == 1 and "run it again for the rest" in error, error
    assert json.loads(out)["counts"] == {"not_reached": 2000} and not json.loads(out)["differences"], out[:300]
    done = command(t, gateway, "records", "reconcile", file, "--operation", "orders.create",
                   "--status", "201", "--evidence", "x", "--apply", "--json")
    assert done[0] == 0 and json.loads(done[1])["counts"]["unknown"] == 2000, done
    assert "2000 of 2000" in done[2], done[2]
    assert len(audit(t, "id")) == 2001
    assert first


def test_what_a_command_gave_up_is_not_done_behind_its_back(t):
    upstream, gateway = t.both()
    _, name = unknown(gateway, upstream)
    held = t.lock("attention", "SHARE")
    code, _, error = command(t, gateway, "records", "resolve", name, "--completed", "201", "--evidence", "x")
    assert code == 1 and "lock timeout" in error, error
    held.close()
    assert until(lambda: t.blocked() == 0, 10, "nobody waiting")
    assert json.loads(command(t, gateway, "records", "show", name, "--json")[1])["state"] == "unknown"
    assert not audit(t, "id")


@own_postgres
def test_people_are_not_left_waiting_for_a_postgresql_that_hangs(t):
    upstream, gateway = t.both(top=tokens(t))
    _, name = unknown(gateway, upstream)
    until(lambda: ask(gateway, "GET", f"/v1/records/{name}").status == 200, 5, "the ledger being asked")
    t.postgres.pause()
    began = time.monotonic()
    results = together([lambda: ask(gateway, "GET", f"/v1/records/{name}")] * 20)
    codes = sorted(r.code for r in results)
    assert codes == ["ledger_unavailable"] * 16 + ["overloaded"] * 4, results
    assert time.monotonic() - began < 25 * SLOW
    assert gateway.admin("/healthz").status == 200
    t.postgres.resume()
    until(lambda: ask(gateway, "GET", f"/v1/records/{name}").status == 200, 20, "the ledger answering again")


def test_an_account_is_erased_over_http_with_a_reason(t):
    upstream, gateway = t.both(top=tokens(t))
    key = t.key()
    gateway.post(key)
    erase = {"account": "public", "reason": "asked for"}
    assert ask(gateway, "POST", "/v1/accounts/erase", {"account": "public"}).status == 400
    assert ask(gateway, "POST", "/v1/accounts/erase", erase, who="vera").status == 403
    response = ask(gateway, "POST", "/v1/accounts/erase", {**erase, "dry_run": True})
    assert response.status == 200 and response.json()["dry_run"] is True, response
    assert gateway.post(key).replayed
    until(lambda: ask(gateway, "POST", "/v1/accounts/erase", erase).status == 200, 5, "the erasure")
    until(lambda: gateway.post(key).status == 410, 20, "the response being gone")
    assert upstream.count(key) == 1


def test_a_report_that_contradicts_itself_is_left_alone_in_whole(t):
    """Also the lines before the contradiction, whichever order they stand in."""
    upstream, gateway = t.both()
    keys = [unknown(gateway, upstream)[0] for _ in range(5)]
    lines = ((keys[0], 201, "r-1"), (keys[0], 201, "r-1"), (keys[0], 201, "r-2"),  # two receipts
             (keys[1], 201, "/o/3"), (keys[1], 201, "/o/3"),  # one receipt, by another name
             (keys[2], 201, "http://other.example/x/../o/%33#top"),
             (keys[3], 201, None), (keys[3], 202, None),  # two statuses
             (keys[4], 500, "r-9"))  # what the route would not store
    file = os.path.join(t.directory, "report.jsonl")
    with open(file, "w", encoding="utf-8") as out:
        for key, status, receipt in lines:
            out.write(json.dumps({"key": key, "status": status, "receipt": receipt}) + "\n")
    for more in ((), ("--apply",)):
        code, out, error = command(t, gateway, "records", "reconcile", file, "--operation", "orders.create",
                                   "--evidence", "x", "--json", *more)
        counts = json.loads(out)["counts"]
        assert code == 1, error
        assert counts == {"doubled_key": 5, "doubled_receipt": 3, "not_stored": 1}, counts
    time.sleep(1.1)
    code, out, error = command(t, gateway, "records", "reconcile", file, "--operation", "orders.create",
                               "--evidence", "x", "--json", "--apply", "--absent-is-proof", "--as-of",
                               time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    assert "absent" not in json.loads(out)["counts"], "what a report contradicts itself about is not absent from it"
    for key in keys:
        assert gateway.post(key).code == "idempotency_result_unknown"


def test_a_report_of_one_account_says_nothing_of_others(t):
    upstream, gateway = t.both()
    key = unknown(gateway, upstream)[0]
    file = os.path.join(t.directory, "report.csv")
    with open(file, "w", encoding="utf-8") as out:
        out.write("key,status\n")
    time.sleep(1.1)
    code, out, error = command(t, gateway, "records", "reconcile", file, "--operation", "orders.create", "--evidence",
                               "x", "--apply", "--json", "--account", "other", "--absent-is-proof", "--as-of",
                               time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    assert code == 0 and json.loads(out)["counts"] == {}, (out, error)
    assert gateway.post(key).code == "idempotency_result_unknown"


def test_what_is_absent_from_a_report_may_not_have_been_running_then(t):
    """A request that was on its way when the report was made is in none, and may be executed after it."""
    upstream, gateway = t.both(idempotency={"lease": "120s"})
    old, _ = unknown(gateway, upstream)
    file = os.path.join(t.directory, "report.csv")
    with open(file, "w", encoding="utf-8") as out:
        out.write("key,status\n")
    reconcile = ("records", "reconcile", file, "--operation", "orders.create", "--evidence", "x", "--json",
                 "--apply", "--absent-is-proof", "--as-of")
    begun = time.time()
    time.sleep(1.1)
    t.rows(f"UPDATE onceward.event SET at = to_timestamp({begun} + 1.0)")  # it took that long to fail
    t.rows(f"UPDATE onceward.attention SET created_at = to_timestamp({begun} - 9)")

    def as_of(at):
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03}Z"
    code, out, error = command(t, gateway, *reconcile, as_of(begun))
    assert code == 0 and json.loads(out)["counts"] == {"too_new": 1}, (out, error)
    code, out, error = command(t, gateway, *reconcile, as_of(time.time() + 3600))
    assert code == 2 and "--as-of" in error, (code, out, error)
    code, out, error = command(t, gateway, *reconcile, "2030-13-31T12:00:00Z")
    assert code == 2 and "--as-of" in error, (code, out, error)
    assert gateway.post(old).code == "idempotency_result_unknown"
    code, out, error = command(t, gateway, *reconcile, as_of(time.time()))
    assert code == 0 and json.loads(out)["counts"] == {"absent": 1}, (out, error)


def test_an_empty_file_is_no_report(t):
    upstream, gateway = t.both()
    key, _ = unknown(gateway, upstream)
    file = os.path.join(t.directory, "report.csv")
    open(file, "w", encoding="utf-8").close()  # pylint: disable=consider-using-with
    time.sleep(1.1)
    code, out, error = command(t, gateway, "records", "reconcile", file, "--operation", "orders.create", "--evidence",
                               "x", "--apply", "--absent-is-proof", "--as-of",
                               time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    assert code == 1 and "empty" in error, (code, out, error)
    assert gateway.post(key).code == "idempotency_result_unknown"


def test_a_receipt_is_the_same_however_an_operator_writes_it(t):
    """What the API answers late is compared with it, and a false alarm would stop the operation."""
    upstream, gateway = t.both(idempotency={"response": {"receipt": "header:Location"}})
    _, name = unknown(gateway, upstream)
    code, out, error = command(t, gateway, "records", "resolve", name, "--completed", "201", "--evidence", "x",
                               "--receipt", "https://api.example/a/../orders/%31%37", "--json")
    assert code == 0 and json.loads(out)["receipt"] == "/orders/17", (out, error)


def test_a_terminal_obeys_nothing_that_a_record_holds(t):
    upstream, gateway = t.both()
    _, name = unknown(gateway, upstream)
    code, _, error = command(t, gateway, "records", "resolve", name, "--not-executed", "--evidence",
                             "\x1b[31mred \x9b31m\u202e", "--as", "\x9bme")
    assert code == 0, error
    for words in (("records", "show", name), ("records", "show", name, "--json")):
        code, out, error = command(t, gateway, *words)
        assert code == 0 and "[31mred" in out, error
        assert not any(c in out for c in "\x1b\x9b"), out


def test_a_receipt_that_another_key_has_stops_the_account_whoever_says_it(t):
    for by in ("operator", "report"):
        upstream, gateway = t.both(idempotency={"response": {"receipt": "header:Location", "receipt_unique": True}})
        first = t.key()
        upstream.on(first, answer(201, fields=[("Location", f"/v1/orders/{by}")]))
        assert gateway.post(first).status == 201
        key, name = unknown(gateway, upstream)
        if by == "operator":
            done = command(t, gateway, "records", "resolve", name, "--completed", "201", "--evidence", "x",
                           "--receipt", f"/v1/orders/{by}")
        else:
            file = os.path.join(t.directory, "report.jsonl")
            with open(file, "w", encoding="utf-8") as out:
                out.write(json.dumps({"key": key, "status": 201, "receipt": f"/v1/orders/{by}"}) + "\n")
            done = command(t, gateway, "records", "reconcile", file, "--operation", "orders.create", "--evidence",
                           "x", "--apply")
        assert done[0] == 0, done
        stops = t.rows("SELECT reason FROM onceward.stop WHERE ended_at IS NULL")
        assert stops == [["duplicate_effect"]], (by, stops)
        done = command(t, gateway, "operations", "resume", "orders.create", "--reason", "seen")
        assert done[0] == 0, done


def test_another_receipt_than_the_ledgers_is_exit_1(t):
    upstream, gateway = t.both(idempotency={"response": {"receipt": "header:Location"}})
    key = t.key()
    upstream.on(key, answer(201, fields=[("Location", "/v1/orders/1")]))
    gateway.post(key)
    file = os.path.join(t.directory, "report.csv")
    for receipt, code in (("https://elsewhere.example/v1/orders/%31", 0), ("/v1/orders/2", 1)):
        with open(file, "w", encoding="utf-8") as out:
            out.write(f"key,status,receipt\n{key},201,{receipt}\n")
        done = command(t, gateway, "records", "reconcile", file, "--operation", "orders.create", "--evidence", "x")
        assert done[0] == code, done


def test_replays_are_counted_and_written_down_now_and_then(t):
    upstream, gateway = t.both(**unhurried(tokens(t), {"wait": "20s"}))
    key, other = t.key(), t.key()
    upstream.on(key, after(0.5, answer(201)))
    together([lambda: gateway.post(key)] * 5)
    name = gateway.post(key).request_id
    gateway.post(key, body=b"{}")  # another content is no replay
    gateway.post(other)

    def count():
        return ask(gateway, "GET", f"/v1/records/{name}").json()["replays"]
    assert count() == 0, "not while somebody waits for it"
    until(lambda: count() == 5, 25, "five replays being counted")
    assert t.rows("SELECT count(*) FROM onceward.replay") == [["1"]]
