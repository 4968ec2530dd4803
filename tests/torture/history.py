"""What others wrote down in a run: the clients their answers, the upstream its arrivals, the ledger its
rows. The checker judges by these alone.

Clients and upstream tell the time by CLOCK_MONOTONIC, PostgreSQL by the clock on the wall; a History
knows how far these are apart.
"""
import collections
import datetime
import json

RELEASE = {307, 308, 400, 401, 403, 404, 405, 407, 411, 412, 413, 414, 415, 417, 421, 423, 425, 426,
           428, 429, 431}
# Answers that say nothing of the record: the request did not get as far.
ELSEWHERE = {"ledger_unavailable", "overloaded"}
GONE = "idempotency_result_not_retained"
CLAIM, COMPLETED, UNKNOWN, RELEASED = 1, 2, 3, 4


def moment(text):
    """A timestamptz of PostgreSQL in seconds."""
    return datetime.datetime.fromisoformat(text).timestamp()


class Arrival:
    """A request that reached the upstream, and what it did about it."""

    def __init__(self, line):
        self.n, self.at, self.whole = line["n"], line["t"], line["whole"]
        self.name = (line.get("path"), line.get("account"), line.get("key"))
        self.body = line.get("body", "")
        self.executed = self.known = False
        self.answer = self.answered_at = None

    @property
    def content(self):
        return tuple(sorted(json.loads(self.body).items())) if self.whole else None

    @property
    def refused(self):
        """Before any effect, and said so in a whole answer."""
        return (self.answer is not None and self.answer["status"] in RELEASE
                and self.has_end and not self.executed)

    @property
    def has_end(self):
        """Is its answer one that is whole, and can be known to be?"""
        return not self.answer["how"].endswith(("half", "until-close"))

    def __str__(self):
        said = f"{self.answer['status']} {self.answer['how']} at {self.answered_at:.3f}" \
            if self.answer else "nothing"
        return f"{self.at:.3f} arrival {self.n}{'' if self.whole else ' (in part)'}: {self.body}" \
               f"{' EXECUTED' if self.executed else ''}{' known' if self.known else ''}, said {said}"


def read_arrivals(file):
    arrivals = {}
    for text in file:
        line = json.loads(text)
        if line["what"] == "told":
            continue
        if line["what"] == "arrived":
            arrivals[line["n"]] = Arrival(line)
            continue
        arrival = arrivals[line["n"]]
        arrival.executed |= line["what"] == "effect"
        arrival.known |= line["what"] == "known"
        if line["what"] == "answer":
            arrival.answer, arrival.answered_at = line, line["t"]
    return list(arrivals.values())


class Row:
    """A record as the ledger holds it: op, and its events by slot."""

    def __init__(self, op, events, key, attention):
        self.name = ("/" + op["operation"].split(".")[1], op["account"], op["key"])
        self.op, self.events, self.attention = op, events, attention
        self.has_key = key is not None and key["op_id"] == op["op_id"]
        self.other_key = key is not None and not self.has_key
        self.positive = {slot: e for slot, e in sorted(events.items()) if slot > 0}
        self.began = moment(op["created_at"])

    @property
    def end(self):
        return list(self.positive.values())[-1] if self.positive else {}

    @property
    def over_at(self):
        """When its key may be new again; only what has an end is ever over."""
        if self.state != "completed":
            return float("inf")
        return History.TOMBSTONE.get(self.name[0], float("inf")) + \
            (self.began if self.end["slot"] == 1 else moment(self.end["at"]))

    @property
    def state(self):
        if not self.positive:
            return "in flight" if self.op["lease_left"] > 0 else "unknown"
        if self.end["kind"] == CLAIM:
            return "in flight" if self.end["lease_left"] > 0 else "unknown"
        return {COMPLETED: "completed", UNKNOWN: "unknown", RELEASED: "released"}[self.end["kind"]]

    def __str__(self):
        shown = [(e["slot"], e["kind"], e.get("source"), e.get("status"), e.get("note"), e["at"])
                 for e in self.events.values()]
        return f"op {self.op['op_id']} created {self.op['created_at']}, lease left" \
               f" {self.op['lease_left']:.1f} s: {self.state}, events {shown}," \
               f" key {'its own' if self.has_key else 'another' if self.other_key else 'none'}," \
               f" attention {self.attention}"


class History:
    """All that is known of a run."""

    MAX_BODY, MAX_ATTEMPTS, WINDOW = {"/stream": 8192}, 4, 15.0
    RETENTION, TOMBSTONE = {"/short": 2.0}, {"/short": 6.0}
    NOT_FOUND_AFTER = 9.0

    def __init__(self, asks, arrivals, rows, final, more=None):
        self.asks, self.arrivals, self.rows = asks, arrivals, rows
        more = more or {}
        self.stops = more.get("stops", ())  # that were raised: reason and detail
        self.said = more.get("said", ())  # what operators said of records, and were told about that
        self.erased = more.get("erased")  # an account, after all else
        self.read_at = more.get("read_at", float("inf"))  # the rows, by the clock on the wall
        self.offset = more.get("offset", 0.0)  # from the upstream's and the clients' clock to that
        self.final = final  # the last answers: by key, one for each content
        self.by_name = collections.defaultdict(lambda: ([], [], []))
        # Whether an answer that ends with its connection is whole nobody can tell: it is no result.
        self.open_ended = {a.answer["body"] for a in arrivals
                           if a.answer and a.answer["how"].endswith("until-close")}
        for ask in asks:
            ask.result = ask.recorded and not ask.code and ask.body not in self.open_ended
        for place, things in enumerate((asks, arrivals, rows)):
            for thing in things:
                self.by_name[thing.name][place].append(thing)
        self.of_id = collections.defaultdict(list)  # answers that speak of a record, by its id
        for ask in asks:
            if ask.request_id and not ask.lost and ask.code not in ELSEWHERE:
                self.of_id[ask.request_id].append(ask)

    def max_body(self, name):
        return self.MAX_BODY.get(name[0], 65536)

    def record_at(self, name, at):
        """The newest that was there by then."""
        at += self.offset + 0.01
        return next((row for row in reversed(self.by_name[name][2]) if row.began <= at), None)

    def record_of(self, arrival):
        """That for which it arrived."""
        return self.record_at(arrival.name, arrival.at)

    def of_records(self, arrivals):
        """The same arrivals, by record."""
        found = collections.defaultdict(list)
        for arrival in arrivals:
            found[id(self.record_of(arrival))].append(arrival)
        return found.values()

    def tell(self, name):
        """All that happened with a key, in order."""
        asks, arrivals, rows = self.by_name[name]
        lines = [(a.began, f"client   {a}") for a in asks]
        lines += [(a.at, f"upstream {a}") for a in arrivals]
        return [text for _, text in sorted(lines, key=lambda l: l[0])] + \
               [f"ledger   {row}" for row in rows]
