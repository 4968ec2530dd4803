"""Digests under secret keys: rotation, and what a gateway does that lacks one (CONTRACT 4)."""
import os

from harness import until
from test_reload import reload

OLD, NEW = "1 " + "a1" * 32, "2 " + "b2" * 32


def keyed(t, *lines, **more):
    """A gateway with these lines in its file of digest keys."""
    upstream = t.upstreams[0] if t.upstreams else t.upstream()
    name = f"digest-{len(t.gateways)}.keys"
    gateway = t.gateway(upstream, start=False, **more)
    gateway.keys_file = os.path.join(t.directory, name)
    write(gateway, *lines)
    gateway.settings["ledger"]["digest_keys"] = name
    gateway.write()
    return upstream, gateway


def write(gateway, *lines):
    with open(gateway.keys_file, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("\n".join(lines) + "\n")


def digest_key(t, key):
    """The id of the digest key under which a record stands."""
    return t.rows("SELECT k.digest_key FROM onceward.key k JOIN onceward.op o USING (op_id) "
                  f"WHERE o.key = '{key}'")[0][0]


def keys_check(gateway):
    response = gateway.admin("/readyz")
    return response.status, response.json()["keys"]


def test_an_old_digest_key_still_verifies_behind_a_new_one(t):
    upstream, gateway = keyed(t, OLD, top={"workers": 1})  # a reload reaches one after the other
    key, other = t.key(), t.key()
    first = gateway.start().post(key)
    assert digest_key(t, key) == "1"
    write(gateway, NEW, OLD)
    assert reload(gateway)
    until(lambda: gateway.post(t.key()).status == 201 and
          t.rows("SELECT 1 FROM onceward.key WHERE digest_key = 2"), 5, "the new key")
    replay = gateway.post(key)
    assert replay.replayed and replay.body == first.body
    assert gateway.post(key, b'{"item":"lamp"}').code == "idempotency_payload_mismatch"
    assert gateway.post(key, b'{ "item" : "b\\u006fok" }').replayed, "compared by content"
    assert gateway.post(other).status == 201 and digest_key(t, other) == "2"
    assert upstream.count(key) == 1 and upstream.count(other) == 1


def test_a_reload_that_adds_a_key_makes_its_records_available(t):
    upstream, old = keyed(t, OLD, top={"workers": 1})
    _, new = keyed(t, NEW, OLD)
    old.start()
    new.start()
    key, mine = t.key(), t.key()
    assert new.post(key).status == 201
    refused = old.post(key)
    assert (refused.status, refused.code) == (503, "ledger_unavailable"), refused
    assert refused.field("Retry-After") and refused.json()["may_have_executed"]
    status, check = keys_check(old)
    assert status == 503 and not check["ok"] and "key 2" in check["detail"], check
    until(lambda: "digest key 2" in old.log(), 5, "the log saying it")
    assert old.post(mine).status == 201 and old.post(mine).replayed, "other records are served"
    write(old, OLD, NEW)
    assert reload(old)
    until(lambda: keys_check(old)[0] == 200, 5, "readiness")
    until(lambda: old.post(key).replayed, 5, "the record being served")
    assert old.post(key, b"{}").code == "idempotency_payload_mismatch"
    assert upstream.count(key) == 1


def test_a_gateway_without_a_live_key_is_never_ready_and_says_which(t):
    _, gateway = keyed(t, OLD)
    key = t.key()
    assert gateway.start().post(key).status == 201
    gateway.put_away()
    _, lacking = keyed(t, NEW)
    lacking.start(ready=False).wait_alive()
    until(lambda: "lacks key 1" in keys_check(lacking)[1]["detail"], 10, "the check")
    assert keys_check(lacking)[0] == 503
    assert lacking.post(key).code == "ledger_unavailable"
    plain = t.gateway(start=False)
    plain.start(ready=False).wait_alive()
    until(lambda: not keys_check(plain)[1]["ok"] and "lacks key" in keys_check(plain)[1]["detail"],
          10, "the check")
    assert plain.post(key).code == "ledger_unavailable"


def test_records_from_before_there_were_keys_stay_what_they_are(t):
    upstream, plain = t.both()
    key = t.key()
    assert plain.post(key).status == 201 and digest_key(t, key) == "0"
    _, gateway = keyed(t, OLD)
    gateway.start()
    assert gateway.post(key).replayed
    assert gateway.post(key, b"{}").code == "idempotency_payload_mismatch"
    assert upstream.count(key) == 1


def test_a_digest_does_not_tell_the_content_without_its_key(t):
    upstream, gateway = keyed(t, OLD)
    plain = t.gateway(upstream)
    key, other = t.key(), t.key()
    gateway.start().post(key)
    plain.post(other)
    digests = t.rows("SELECT digest FROM onceward.key UNION SELECT raw_digest FROM onceward.key")
    assert len(digests) == 4, "two of each, and none alike"


def test_a_file_of_keys_that_others_can_read_is_refused(t):
    _, gateway = keyed(t, OLD)
    os.chmod(gateway.keys_file, 0o644)
    done = t.run("check", "-c", gateway.file)
    assert done.returncode == 1 and "digest_keys" in done.stderr and "chmod 600" in done.stderr
    write(gateway, "1 tooshort")
    done = t.run("check", "-c", gateway.file)
    assert done.returncode == 1 and ".keys:1: " in done.stderr and "tooshort" not in done.stderr
