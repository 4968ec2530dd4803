"""The last act: one account is erased, and asks once more for all that it had asked for."""
import time

import clients
from history import read_arrivals

TABLES = ("op", "event", "event_late", "attention", "receipt", "audit", "erasure", "key")
LETS_GO = 30  # seconds for what the back office still has to do


class Erased:
    """What came of it: answers with what the record had been, effects since, and what was left."""

    def __init__(self, asks, executed, left):
        self.asks, self.executed, self.left = asks, executed, left


def erase(play, history, account):
    with open(play.upstream_log, encoding="utf-8") as file:
        before = {a.n for a in read_arrivals(file) if a.executed}
    done = play.stage.run("erase", "-c", play.gateways[0].file, "--account", account,
                          "--reason", "the end of the run")
    assert done.returncode == 0, done
    play.harness.until(lambda: play.stage.rows("SELECT count(*) FROM onceward.erasure") == [["0"]],
                       LETS_GO, "the erasure coming to its end")
    left = remains(play, history, account)
    asks = ask_again(play, history, account)
    with open(play.upstream_log, encoding="utf-8") as file:
        executed = [(a.name, a.n) for a in read_arrivals(file) if a.executed and a.n not in before]
    return Erased(asks, executed, left)


def remains(play, history, account):
    """What still names it, but for records that have no end yet."""
    waiting = {str(row.op["op_id"]) for row in history.rows
               if row.name[1] == account and row.state in ("unknown", "in flight")}
    clear = (account, account.encode().hex())
    found = []
    for table in TABLES:
        for (line,) in play.stage.rows(f"SELECT replace(t::text, chr(10), ' ') FROM onceward.{table} AS t"):
            if any(word in line for word in clear) and not any(op_id in line for op_id in waiting):
                found.append(f"{table}: {line[:300]}")
    ended = [str(row.op["op_id"]) for row in history.rows
             if row.name[1] == account and row.state in ("completed", "released")]
    held = play.stage.rows(
        "SELECT e.op_id, e.slot FROM (SELECT op_id, slot, headers, body, hash, receipt FROM onceward.event"
        " UNION ALL SELECT op_id, slot, headers, body, hash, receipt FROM onceward.event_late) AS e"
        f" WHERE op_id IN ({','.join(ended or ['0'])})"
        " AND (headers IS NOT NULL OR body IS NOT NULL OR hash IS NOT NULL OR receipt IS NOT NULL)")
    held += play.stage.rows(f"SELECT op_id, 0 FROM onceward.op WHERE op_id IN ({','.join(ended or ['0'])})"
                            " AND (account <> '' OR key <> '')")
    return found + [f"record {op_id} holds something in slot {slot}" for op_id, slot in held]


def ask_again(play, history, account):
    """Each key with the content that it has, and what its record was."""
    found = []
    for name, last in history.final.items():
        states = [r.state for r in history.by_name[name][2] if r.has_key]
        contents = [a.content for a in last if a.code != "idempotency_payload_mismatch"]
        if name[1] != account or not states or not contents:
            continue
        end, log = time.monotonic() + 10, []
        while True:
            one = clients.ask(log, play.gateways[len(found) % 2], name, contents[-1])
            if not one.lost and one.code != "ledger_unavailable" or time.monotonic() > end:
                break
        found.append((one, states[-1]))
    return found
