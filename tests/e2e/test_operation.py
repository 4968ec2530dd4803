"""What an operator meets: settings, reload, stop, health, metrics, log (CONTRACT 14-18)."""
import hashlib
import os
import signal
import time

from harness import SLOW, Connection, Later, answer, merged, own_postgres, request, tag, unhurried, until


def test_a_reload_takes_effect_without_losing_anything(t):
    upstream, gateway = t.both(**unhurried())
    key = t.key()
    gate = upstream.gate(key)
    under_way = Later(lambda: gateway.post(key))
    gate.arrived()
    gateway.settings["routes"].append({"match": "GET /new", "upstream": "orders"})
    gateway.write()
    assert gateway.request("GET", "/new").status == 404
    gateway.hup()
    until(lambda: gateway.request("GET", "/new").status == 201, 5, "the new route")
    gate.open()
    assert under_way.result().status == 201 and upstream.count(key) == 1


def test_a_reload_with_an_error_changes_nothing_and_says_so(t):
    _, gateway = t.both()
    before = gateway.metric("config_reload_success_timestamp_seconds")
    assert before > 0
    gateway.write(merged(gateway.settings, {"liisten": ["x"]}))
    gateway.hup()
    until(lambda: gateway.metric("config_reload_failures_total") == 1, 5, "the failure counted")
    gateway.until_logged("liisten")
    assert gateway.post(t.key()).status == 201
    gateway.write(merged(gateway.settings, {"workers": 3}))
    gateway.hup()
    until(lambda: gateway.metric("config_reload_failures_total") == 2, 5, "workers refused")
    assert gateway.metric("config_reload_success_timestamp_seconds") == before
    gateway.write()
    gateway.hup()
    until(lambda: gateway.metric("config_reload_success_timestamp_seconds") >= before, 5)
    assert gateway.post(t.key()).status == 201


@tag("threads")
def test_reloads_under_load_disturb_nobody(t):
    upstream, gateway = t.both()
    stop = []

    def client():
        while not stop:
            key = t.key()
            assert gateway.post(key).status == 201 and gateway.post(key).replayed
            assert upstream.count(key) == 1
    clients = [Later(client) for _ in range(4)]
    for _ in range(20):
        gateway.hup()
        time.sleep(0.05)
    stop.append(True)
    for each in clients:
        each.result()
    assert gateway.metric("config_reload_failures_total") == 0


@tag("threads")
def test_sigterm_finishes_what_is_under_way_and_exits_0(t):
    upstream, gateway = t.both(**unhurried({"drain_timeout": "50s"}))
    key, waiting = t.key(), Connection(gateway.port)
    gate = upstream.gate(key)
    under_way = Later(lambda: gateway.post(key))
    gate.arrived()
    gateway.term()

    def refused():
        try:
            Connection(gateway.port, 1).close()
            return False
        except OSError:
            return True
    until(refused, 5, "no new connections")
    assert gateway.process.poll() is None, "it waits"
    gate.open()
    assert under_way.result().status == 201
    assert gateway.left() == 0
    waiting.close()
    gateway.start()
    assert gateway.post(key).replayed and upstream.count(key) == 1


def test_a_second_sigterm_leaves_at_once(t):
    upstream, gateway = t.both(**unhurried({"drain_timeout": "60s"}))
    key = t.key()
    gate = upstream.gate(key)
    Later(lambda: gateway.post(key))
    gate.arrived()
    gateway.term()
    gateway.until_logged("draining:")  # two signals at once are one
    gateway.term()
    gateway.process.wait(15 * SLOW)  # long before there is an answer, or the drain is over
    gateway.killed = True  # whatever it left with
    gate.open()


def test_a_drain_ends_in_time(t):
    upstream, gateway = t.both(top={"drain_timeout": "500ms"})
    key = t.key()
    gate = upstream.gate(key)
    Later(lambda: gateway.post(key))
    gate.arrived()
    gateway.term()
    gateway.left()
    gateway.killed = True
    gate.open()
    gateway.start()
    assert gateway.post(key).status == 503 and upstream.count(key) == 1


def test_idle_connections_do_not_hold_up_a_stop(t):
    _, gateway = t.both()
    idle = [Connection(gateway.port) for _ in range(5)]
    gateway.post(t.key())
    gateway.term()
    assert gateway.left() == 0
    for connection in idle:
        connection.close()


def test_health_and_readiness_say_what_is_the_matter(t):
    _, gateway = t.both()
    health, ready = gateway.admin("/healthz"), gateway.admin("/readyz")
    assert health.status == ready.status == 200
    checks = ready.json()
    for name in ("ledger", "durable", "keys", "days_left", "routes"):
        assert name in str(checks), checks
    assert gateway.admin("/nothing").status == 404
    assert gateway.admin("/healthz", "POST").status == 405


def test_the_admin_listener_answers_only_to_its_own_names(t):
    _, gateway = t.both(top={"admin": {"hosts": ["ops.example"]}})
    for host, status in ((f"127.0.0.1:{gateway.admin_port}", 200), ("localhost:1", 200),
                         ("localhost", 200), ("ops.example", 200), ("ops.example:99", 200),
                         ("evil.example", 403), ("127.0.0.1.evil.example", 403)):
        response = request(gateway.admin_port, "GET", "/metrics", host=host)
        assert (response.status == 200) == (status == 200), (host, response)
        assert 400 <= response.status < 500 or status == 200


def test_metrics_need_a_token_where_tokens_are_set(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, top={"admin": {"tokens_file": "admin.tokens"}}, start=False)
    file = os.path.join(t.directory, "admin.tokens")
    with open(file, "w", encoding="utf-8") as tokens:
        for name, role, token, end in (("prom", "viewer", "secret-1", ""),
                                       ("old", "viewer", "secret-2", " 2001-01-01T00:00:00Z")):
            tokens.write(f"{name} {role} {hashlib.sha256(token.encode()).hexdigest()}{end}\n")
    os.chmod(file, 0o600)
    gateway.start()
    assert gateway.admin("/metrics").status == 401
    for token, status in (("secret-1", 200), ("secret-2", 401), ("secret-3", 401), ("", 401)):
        response = gateway.admin("/metrics", fields=[("Authorization", f"Bearer {token}")])
        assert response.status == status, (token, response)
    assert gateway.admin("/healthz").status == gateway.admin("/readyz").status == 200


def test_metrics_count_what_happened(t):
    upstream, gateway = t.both()
    key, failed = t.key(), t.key()
    upstream.on(failed, answer(500))
    gateway.post(key), gateway.post(key), gateway.post(key, b'{"other":1}'), gateway.post(failed)
    gateway.post(None)
    gateway.until_metric(5, "requests_total", operation="orders.create")
    gateway.until_metric(0, "in_flight")
    metrics = gateway.admin("/metrics")
    assert metrics.status == 200 and metrics.field("Content-Type").startswith("text/plain")
    text = metrics.body.decode()
    assert text.endswith("\n") and "# TYPE onceward_requests_total counter" in text
    count = lambda verdict: gateway.metric("requests_total", operation="orders.create", verdict=verdict)
    assert count("forwarded") == 2 and count("replayed") == 1
    assert count("idempotency_payload_mismatch") == 1 and count("idempotency_key_missing") == 1
    assert gateway.metric("replays_total") == gateway.metric("mismatches_total") == 1
    assert gateway.metric("unknown_total") == 1 and gateway.metric("in_flight") == 0
    assert gateway.metric("ledger_up") == 2 and gateway.metric("build_info") == 1
    assert gateway.metric("request_seconds_count", operation="orders.create") == 5
    assert gateway.metric("days_left") >= 1
    for secret in (key, failed, "public", "/v1/orders"):
        assert secret not in text, secret
    until(lambda: gateway.metric("unknown_records", operation="orders.create") == 1, 15,
          "the record on the list being counted")


def test_log_lines_hold_no_key_no_body_no_query_no_credential(t):
    upstream, gateway = t.both(top={"log": {"level": "debug"}})
    key = "key-that-is-secret"
    upstream.on(key, answer(201, b'{"answer":"answer-that-is-secret"}', [("Set-Cookie", "cookie-secret")]))

    def lines():
        return [line for line in gateway.log_lines() if "verdict" in line]
    for n in (1, 2):
        gateway.post(key, b'{"body":"body-that-is-secret"}', target="/v1/orders?q=query-that-is-secret",
                     fields=[("Authorization", "Bearer token-that-is-secret")])
        until(lambda n=n: len(lines()) == n, 5, "its line")  # each of the threads writes its own
    gateway.post(key, b'{"body":"other-that-is-secret"}', target="/v1/orders?q=query-that-is-secret")
    until(lambda: len(lines()) == 3, 5, "its line")
    gateway.post("bad key-that-is-secret", b"{")
    gateway.post(t.key(), b'{"broken-that-is-secret')
    until(lambda: len(lines()) >= 5, 5, "five lines")
    assert "secret" not in gateway.log()
    three = lines()[:3]
    assert [line["verdict"] for line in three] == [
        "forwarded", "replayed", "idempotency_payload_mismatch"], three
    assert three[0]["operation"] == "orders.create" and three[0]["status"] == 201
    assert len({str(line.get("request_id")) for line in three}) == 1


def test_every_log_line_is_json(t):
    upstream, gateway = t.both()
    upstream.on("/plain/x", answer(500))
    gateway.request("GET", "/plain/x", [("User-Agent", '"\\\x80')])
    gateway.post('a"b')
    gateway.term()
    gateway.left()
    lines = gateway.log().splitlines()
    assert len(lines) == len(gateway.log_lines()) > 2, lines


def test_settings_with_errors_do_not_start_and_all_are_named(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, start=False, top={
        "liisten": ["x"], "workers": "many", "ledger": {"timeout": "2 parsecs"}},
        idempotency={"account": "nobody", "lease": "1s"})
    for command in (("-c", gateway.file), ("check", "-c", gateway.file)):
        done = t.run(*command)
        assert done.returncode == 1, done
        said = done.stdout + done.stderr
        for word in ("liisten", "listen", "workers", "timeout", "nobody", "lease"):
            assert word in said, (word, said)
        assert f"{gateway.file}:" in said


def test_good_settings_are_checked_and_explained(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, start=False)
    assert t.run("check", "-c", gateway.file).returncode == 0
    explained = t.run("check", "-c", gateway.file, "--explain")
    assert explained.returncode == 0 and "POST /v1/orders" in explained.stdout


def test_the_example_is_a_valid_file(t):
    example = t.run("example")
    assert example.returncode == 0 and "listen" in example.stdout
    file = os.path.join(t.directory, "example.conf")
    with open(file, "w", encoding="utf-8") as out:
        out.write(example.stdout)
    done = t.run("check", "-c", file)
    assert done.returncode == 0, done


def test_wrong_usage_is_exit_2(t):
    for arguments in ((), ("frobnicate",), ("-c",), ("check",), ("--frob",)):
        done = t.run(*arguments)
        assert done.returncode == 2, (arguments, done)
        assert done.stderr and not done.stdout, arguments
    assert t.run("--help").returncode == 0 and "migrate" in t.run("--help").stdout
    assert t.run("--version").stdout.startswith("onceward ")
    missing = t.run("-c", "/nonexistent/gateway.conf")
    assert missing.returncode == 1 and "/nonexistent/gateway.conf" in missing.stderr


def test_a_port_that_is_taken_is_a_sentence(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, start=False, top={"listen": [f"127.0.0.1:{upstream.port}"]})
    done = t.run("-c", gateway.file)
    assert done.returncode == 1 and str(upstream.port) in done.stderr, done


def test_two_gateways_do_not_share_a_port_by_mistake(t):
    upstream, gateway = t.both()
    for changes in ({"listen": [f"127.0.0.1:{gateway.port}"]},
                    {"admin": {"listen": f"127.0.0.1:{gateway.admin_port}"}},
                    {"listen": [f"127.0.0.1:{gateway.admin_port}"]},
                    {"admin": {"listen": f"127.0.0.1:{gateway.port}"}}):
        second = t.gateway(upstream, start=False, top=changes)
        done = t.run("-c", second.file)
        taken = changes.get("listen", [changes.get("admin", {}).get("listen")])[0]
        assert done.returncode == 1, (changes, done)
        assert f"cannot listen on {taken}: Address already in use" in done.stderr, done
    for _ in range(20):
        assert gateway.post(t.key()).status == 201, "the first one has all that comes"
        assert gateway.admin("/healthz").status == 200
    gateway.term()
    gateway.left()
    gateway.start()
    assert gateway.post(t.key()).status == 201, "and nobody is in its way when it comes back"


def test_migrating_twice_changes_nothing(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, start=False)
    before = t.rows("SELECT * FROM onceward.schema_version")
    done = t.run("migrate", "-c", gateway.file)
    assert done.returncode == 0, done
    assert t.rows("SELECT * FROM onceward.schema_version") == before
    printed = t.run("migrate", "-c", gateway.file, "--print")
    assert printed.returncode == 0 and "CREATE TABLE onceward.key" in printed.stdout


@own_postgres
def test_a_missing_or_newer_schema_is_exit_1_with_the_way_out(t):
    upstream = t.upstream()
    gateway = t.gateway(upstream, start=False)
    t.rows("INSERT INTO onceward.schema_version (version, oldest_program) VALUES (99, 99)")
    done = t.run("-c", gateway.file)
    assert done.returncode == 1 and "migrate" in done.stderr, done
    t.rows("DELETE FROM onceward.schema_version WHERE version = 99")
    t.rows("INSERT INTO onceward.schema_version (version, oldest_program) VALUES (99, 1)")
    gateway.start()
    assert gateway.post(t.key()).status == 201, "a newer one that still supports this program"
    gateway.term()
    gateway.left()
    t.rows("DROP SCHEMA onceward CASCADE")
    done = t.run("-c", gateway.file)
    assert done.returncode == 1 and "onceward migrate" in done.stderr, done
    assert t.run("migrate", "-c", gateway.file).returncode == 0
    gateway.start()
    assert gateway.post(t.key()).status == 201


def test_an_operation_whose_identity_changed_is_stopped_on_that_gateway(t):
    upstream, gateway = t.both()
    gateway.post(t.key())
    enforced = gateway.settings["routes"][0]["idempotency"]
    other = t.gateway(upstream, routes=[
        {"match": "POST /v2/orders", "upstream": "orders", "idempotency": enforced}], start=False)
    other.start(ready=False).wait_alive()
    key = t.key()

    def stopped():
        response = other.post(key, target="/v2/orders")
        return response if response.code != "ledger_unavailable" else None
    response = until(stopped, 5, "an answer")
    assert (response.status, response.code) == (503, "operation_stopped"), response
    assert response.field("Retry-After") and upstream.count(key) == 0
    assert gateway.post(t.key()).status == 201, "the one that knows it goes on"


def test_a_unix_socket_is_listened_on(t):
    import socket
    upstream = t.upstream()
    path = os.path.join(t.directory, "http.sock")
    gateway = t.gateway(upstream, start=False)
    gateway.settings["listen"] = [f"unix:{path}", f"127.0.0.1:{gateway.port}"]
    gateway.write()
    gateway.start()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20 * SLOW)
        sock.connect(path)
        sock.sendall(b"POST /v1/orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: unix\r\n"
                     b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
        assert sock.recv(65536).startswith(b"HTTP/1.1 201")
    assert gateway.post("unix", b"{}", [("Content-Type", "")]).status in (201, 409)


def test_sigint_stops_it_too(t):
    _, gateway = t.both()
    gateway.process.send_signal(signal.SIGINT)
    assert gateway.left() == 0
