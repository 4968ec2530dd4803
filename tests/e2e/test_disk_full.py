"""A disk that is full: refused in time, nothing executed twice, and what was answered is not lost."""
import os
import subprocess

from harness import Later, answer, own_postgres, unhurried, until

SHORT = {"ledger": {"timeout": "1s"}}


def small_disk(t):
    """Moves the test's PostgreSQL to a disk of its own; the directory, or None where nobody may mount."""
    disk = os.path.join(t.directory, "disk")
    os.mkdir(disk, 0o755)
    t.postgres.stop("fast")
    size = int(subprocess.run(["du", "-sm", t.postgres.directory], check=True, capture_output=True,
                              text=True).stdout.split()[0]) + 40
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=755", "tmpfs", disk],
                             check=False, capture_output=True)
    if mounted.returncode:
        t.postgres.start()
        return None
    whole = t.postgres
    t.postgres = whole.copy_to(os.path.join(disk, "pg"))

    def back():
        t.postgres.kill()
        subprocess.run(["umount", "-l", disk], check=True)
        t.postgres = whole
        whole.start()

    t.cleanups.append(back)
    t.postgres.start()
    return disk


def fill(disk):
    """All but a few pages."""
    with open(os.path.join(disk, "fill"), "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            file.truncate(max(0, file.tell() - 131072))


def lives_on(t):
    """PostgreSQL stops itself where it can't write its log, which takes it a while."""
    if t.postgres.process.poll() is not None:
        t.postgres.start()


@own_postgres
def test_a_full_disk_is_503_and_no_key_executes_twice_or_is_forgotten(t):
    disk = small_disk(t)
    if not disk:
        print("skipped: this user may not mount a small disk")
        return
    upstream, gateway = t.both(**unhurried(SHORT, {"settle_wait": "500ms"}))
    fill(disk)
    keys, given = [t.key() for _ in range(120)], {}
    for key in keys:  # large answers need new pages
        upstream.on(key, answer(201, os.urandom(30000), content_type="application/octet-stream"))
        response = gateway.post(key)
        given[key] = response
        assert response.status in (201, 503), response
        if len([r for r in given.values() if r.status == 503]) >= 5:
            break
    refused = [key for key in given if given[key].status == 503]
    assert refused, "the disk never filled up"
    assert all(upstream.count(key) <= 1 for key in given)
    os.remove(os.path.join(disk, "fill"))
    for key in given:
        def ended(key=key):
            lives_on(t)
            response = gateway.post(key)
            return response if response.status == 201 else None
        response = until(ended, 30, f"an end of {key}")
        assert upstream.count(key) == 1
        if given[key].status == 201:
            assert response.replayed and response.body == given[key].body


@own_postgres
def test_a_full_disk_while_the_upstream_works_loses_no_answer(t):
    disk = small_disk(t)
    if not disk:
        print("skipped: this user may not mount a small disk")
        return
    upstream, gateway = t.both(**unhurried(SHORT, {"settle_wait": "500ms"}))
    key, body = t.key(), os.urandom(900000)
    gate = upstream.gate(key, answer(201, body, content_type="application/octet-stream"))
    first = Later(lambda: gateway.post(key))
    gate.arrived()
    fill(disk)
    gate.open()
    response = first.result()
    assert response.status in (201, 503), response
    if response.status == 503:
        assert response.code == "idempotency_result_unknown"
    os.remove(os.path.join(disk, "fill"))

    def ended():
        lives_on(t)
        again = gateway.post(key)
        return again if again.status == 201 else None
    again = until(ended, 30, "the stored answer")
    assert again.replayed and again.body == body and upstream.count(key) == 1
