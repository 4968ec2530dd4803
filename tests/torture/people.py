"""Operators who find out what became of unknown records, in the upstream's own log, and say so: from
two sides at once, over the admin listeners of both gateways and by commands, sometimes with a whole
report. They tell the truth: that something was not done they say only when it cannot be done any more.
Who purges keys by hand is one of them.

What they said and what they were told is written down; the checker compares it with the ledger.
"""
import collections
import datetime
import hashlib
import json
import os
import random
import threading
import time
import traceback

from harness import Cut, request, together
from history import COMPLETED, RELEASED, moment, read_arrivals

OPERATIONS = ("torture.people", "torture.short")
REPORTED = "torture.people"  # a report names keys, and here none is used again behind a tombstone
ABSENT = 11.5  # seconds after its reservation what was not done will not be done, see upstream.py
NOBODIES = 200  # lines of a report that the ledger does not know


class Said:
    """What somebody said of one record, and what the answer was: done, refused, or perhaps."""

    def __init__(self, who, record, thing, body):
        self.name, self.request_id = record["name"], record["logical_request_id"]
        self.evidence, self.thing, self.body = who, thing, body
        self.kind = COMPLETED if thing else RELEASED
        self.began, self.told = time.monotonic(), "perhaps"

    def __str__(self):
        return f"{self.began:.3f} {self.evidence} said of {self.request_id} {self.thing or 'not executed'}:" \
               f" {self.told}"


def write_tokens(file):
    """One token for each who works by HTTP."""
    with open(file, "w", encoding="utf-8") as out:
        for name in ("olga", "pete"):
            out.write(f"{name} operator {hashlib.sha256(name.encode()).hexdigest()}\n")
    os.chmod(file, 0o600)


class People:
    """A thread, until .stop()."""

    def __init__(self, play, seed):
        self.play, self.said, self.died, self.reports = play, [], [], 0
        self.dice, self.count = random.Random(f"{seed} people"), 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        rounds = (self.resolve_some, self.resolve_some, self.resolve_some, self.resolve_some,
                  self.resolve_some, self.report, self.purge)
        while not self.stopping.wait(self.dice.uniform(0.1, 0.8)):
            try:
                self.dice.choice(rounds)()
            except Exception as error:  # pylint: disable=broad-except
                traceback.print_exc()
                self.died.append(f"an operator cannot work: {error}"[:2000])

    def stop(self):
        """What was said, and what kept them from their work."""
        self.stopping.set()
        self.thread.join(60)
        assert not self.thread.is_alive(), "the operators do not come to an end"
        return self.said, self.died

    # ---------------------------------------------------------------- what they know

    def effects(self):
        """What the upstream has done until now: by key, when and what."""
        found = collections.defaultdict(list)
        with open(self.play.upstream_log, encoding="utf-8") as file:
            for arrival in read_arrivals(line for line in file if line.endswith("\n")):
                if arrival.executed:
                    found[arrival.name].append((arrival.at + self.play.offset, f"/things/{arrival.n}"))
        return found

    def unknown(self):
        """Records that wait for somebody, as one of the gateways lists them."""
        gateway, records = self.dice.choice(self.play.gateways), []
        for operation in OPERATIONS:
            status, page = self.http(gateway, "olga", "GET",
                                     f"/v1/records?state=unknown&operation={operation}&reveal=1&limit=1000")
            records += page["records"] if status == 200 else []
        for record in records:
            record["name"] = ("/" + record["operation"].split(".")[1], record["account"], record["key"])
            record["began"] = moment(record["created_at"].replace("Z", "+00:00"))
        return records

    # ---------------------------------------------------------------- what they say

    def resolve_some(self):
        at = time.time()
        effects = self.effects()  # before the list: what is done later is not of what is listed
        for record in self.unknown():
            things = [thing for when, thing in effects[record["name"]] if when >= record["began"] - 0.01]
            if self.stopping.is_set() or self.dice.random() < 0.3:
                continue
            if things or at > record["began"] + ABSENT:
                self.resolve(record, (things or [None])[-1])

    def resolve(self, record, thing):
        one, two = self.play.gateways
        ways = [lambda: self.by_http(one, "olga", record, thing),
                lambda: self.by_http(two, "pete", record, thing),
                lambda: self.by_command(self.dice.choice((one, two)), record, thing)]
        for failed in together(self.dice.sample(ways, self.dice.choice((1, 2, 2, 2, 3)))):
            if failed:
                raise failed

    def say(self, who, record, thing):
        self.count += 1
        evidence = f"{who}-{self.count}-{self.dice.randrange(10 ** 9)}"
        said = Said(evidence, record, thing, json.dumps({"resolved": evidence}) if thing else None)
        self.said.append(said)
        return said

    def http(self, gateway, who, method, target, body=None):
        """The status and the document; None where there is no answer."""
        try:
            response = request(gateway.admin_port, method, target, [("Authorization", f"Bearer {who}")],
                               json.dumps(body).encode() if body else None, timeout=5,
                               host=f"127.0.0.1:{gateway.admin_port}")
            return response.status, response.json()
        except (OSError, Cut):
            return None, None

    def by_http(self, gateway, who, record, thing):
        said = self.say(who, record, thing)
        body = {"outcome": "not_executed", "evidence": said.evidence}
        if thing:
            body.update(outcome="completed", status=201, body=said.body, receipt=thing,
                        headers={"Location": thing})
        if self.dice.random() < 0.5:
            body["generation"] = record["generation"]
        status, _ = self.http(gateway, who, "POST", f"/v1/records/{said.request_id}/resolve", body)
        said.told = {200: "done", 404: "refused", 409: "refused"}.get(status, "perhaps")

    def by_command(self, gateway, record, thing):
        said = self.say("ada", record, thing)
        words = ["--not-executed"]
        if thing:
            with open(self.file(f"{said.evidence}.body"), "w", encoding="utf-8") as file:
                file.write(said.body)
            words = ["--completed", "201", "--receipt", thing, "--header", f"Location: {thing}",
                     "--body", file.name]
        done = self.play.stage.run("records", "resolve", said.request_id, *words, "--evidence",
                                   said.evidence, "--as", "ada", "-c", gateway.file)
        assert done.returncode in (0, 1), done
        said.told = "done" if done.returncode == 0 else "perhaps"

    def file(self, name):
        return os.path.join(self.play.stage.directory, name)

    def report(self):
        """All that was done, and some of which nobody here has heard; what is on no line was not done."""
        self.reports += 1
        evidence = f"report-{self.reports}"
        as_of, effects, lines = time.time() - ABSENT, self.effects(), []
        for name, found in effects.items():
            if name[0] != "/people":
                continue
            said = Said(evidence, {"name": name, "logical_request_id": None}, found[-1][1],
                        json.dumps({"resolved": evidence, "key": name[2]}))
            self.said.append(said)
            lines.append({"key": name[2], "account": name[1], "status": 201, "receipt": said.thing,
                          "body": said.body})
        lines += [{"key": f"nobody-{n}", "account": "ann", "status": 201, "receipt": f"/things/n{n}"}
                  for n in range(NOBODIES)]
        self.dice.shuffle(lines)
        with open(self.file(f"{evidence}.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        moment_of = datetime.datetime.fromtimestamp(as_of, datetime.timezone.utc)
        done = self.play.stage.run(
            "records", "reconcile", file.name, "--operation", REPORTED, "--evidence", evidence, "--apply",
            "--absent-is-proof", "--as-of", moment_of.strftime("%Y-%m-%dT%H:%M:%SZ"), "--json",
            "-c", self.dice.choice(self.play.gateways).file)
        assert done.returncode in (0, 1), done
        counts = json.loads(done.stdout)["counts"] if done.stdout else {}
        assert not [word for word in counts if word.startswith("doubled")], f"doubles? {done}"

    def purge(self):
        done = self.play.stage.run("purge", "-c", self.dice.choice(self.play.gateways).file)
        assert done.returncode in (0, 1), done
