"""Behind PgBouncer in transaction mode, which keeps nothing of a session (DESIGN 4.8)."""
import os
import shutil
import subprocess

from harness import together, unhurried, until


def test_a_pooler_in_transaction_mode_will_do(t):
    program = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
    assert program, "pgbouncer is missing: scripts/setup check installs it"
    port, directory = t.free_port(), t.postgres.directory
    conf = os.path.join(t.directory, "pgbouncer.ini")
    with open(conf, "w", encoding="utf-8") as file:
        file.write(f"[databases]\n{t.database} = host={directory} user=onceward\n[pgbouncer]\n"
                   f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
                   "auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n")
    os.chmod(t.directory, 0o755)
    how = t.postgres.as_user()
    pooler = subprocess.Popen([program, conf], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, cwd="/", **how)
    t.cleanups.append(lambda: (pooler.terminate(), pooler.wait(10)))
    upstream = t.upstream()
    gateway = t.gateway(upstream, **unhurried({"ledger": {
        "conninfo": f"host=127.0.0.1 port={port} user=onceward dbname={t.database}",
        "maintenance_conninfo": t.postgres.conninfo(t.database), "prepared": False,
        "timeout": "10s"}}, {"wait": "20s"}))
    keys = [t.key() for _ in range(40)]
    results = together([lambda k=k: gateway.post(k) for k in keys * 2])
    for i, key in enumerate(keys):
        assert results[i].status == results[i + 40].status == 201, results[i]
        assert results[i].body == results[i + 40].body and upstream.count(key) == 1
    until(lambda: gateway.post(keys[0]).replayed, 5)
