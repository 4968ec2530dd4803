"""What must hold, whatever went wrong. Decided by what others wrote down: the clients their answers,
the upstream its arrivals, the ledger its rows. Nothing here asks the gateways.

Each function of CHECKS is a promise, and yields what breaks it: (name of the key, what happened).
"""
import collections
import datetime
import json

RELEASE = {307, 308, 400, 401, 403, 404, 405, 407, 411, 412, 413, 414, 415, 417, 421, 423, 425, 426,
           428, 429, 431}
STORE = set(range(200, 300)) | {301, 302, 303, 402, 409, 410, 422}
RESEND_STORE = set(range(200, 300)) | {402}
# Answers that say nothing of the record: the request did not get as far.
ELSEWHERE = {"ledger_unavailable", "overloaded"}
MISMATCH = "idempotency_payload_mismatch"
GONE = "idempotency_result_not_retained"
EXPECTED = ELSEWHERE | {MISMATCH, GONE, "idempotency_in_progress", "idempotency_result_unknown",
                        "upstream_unreachable"}
NEVER_AGAIN = {"/hold", "/deliver"}  # routes that send once whatever happens
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
                and self.answer["how"] == "whole" and not self.executed)

    def __str__(self):
        said = f"{self.answer['status']} {self.answer['how']} at {self.answered_at:.3f}" \
            if self.answer else "nothing"
        return f"{self.at:.3f} arrival {self.n}{'' if self.whole else ' (in part)'}: {self.body}" \
               f"{' EXECUTED' if self.executed else ''}{' known' if self.known else ''}, said {said}"


def read_arrivals(file):
    arrivals = {}
    for text in file:
        line = json.loads(text)
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

    @property
    def state(self):
        if not self.positive:
            return "in flight" if self.op["lease_left"] > 0 else "unknown"
        last = list(self.positive.values())[-1]
        if last["kind"] == CLAIM:
            return "in flight" if last["lease_left"] > 0 else "unknown"
        return {COMPLETED: "completed", UNKNOWN: "unknown", RELEASED: "released"}[last["kind"]]

    def __str__(self):
        shown = [(e["slot"], e["kind"], e.get("status"), e.get("note"), e["at"])
                 for e in self.events.values()]
        return f"op {self.op['op_id']} created {self.op['created_at']}, lease left" \
               f" {self.op['lease_left']:.1f} s: {self.state}, events {shown}," \
               f" key {'its own' if self.has_key else 'another' if self.other_key else 'none'}," \
               f" attention {self.attention}"


class History:
    """All that is known of a run."""

    MAX_BODY, MAX_ATTEMPTS, WINDOW = 65536, 4, 15.0

    def __init__(self, asks, arrivals, rows, final, stops=()):
        self.asks, self.arrivals, self.rows = asks, arrivals, rows
        self.stops = stops  # that were raised: reason and detail
        self.final = final  # the last answers: by key, one for each content
        self.by_name = collections.defaultdict(lambda: ([], [], []))
        # Whether an answer that ends with its connection is whole nobody can tell: it is no result.
        open_ended = {a.answer["body"] for a in arrivals
                      if a.answer and a.answer["how"] == "until-close"}
        for ask in asks:
            ask.result = ask.recorded and not ask.code and ask.body not in open_ended
        for place, things in enumerate((asks, arrivals, rows)):
            for thing in things:
                self.by_name[thing.name][place].append(thing)

    def tell(self, name):
        """All that happened with a key, in order."""
        asks, arrivals, rows = self.by_name[name]
        lines = [(a.began, f"client   {a}") for a in asks]
        lines += [(a.at, f"upstream {a}") for a in arrivals]
        return [text for _, text in sorted(lines, key=lambda l: l[0])] + \
               [f"ledger   {row}" for row in rows]


def forwarded(asks):
    """Answers of the upstream that were passed on to the client for which they were made."""
    return [a for a in asks if not a.lost and not a.code and not a.replayed]


def succeeded(asks):
    """Answers by which the client knows its result."""
    return [a for a in asks if a.result and (a.replayed or a.status in STORE)]


def result(ask):
    return (ask.status, ask.body, tuple(sorted(ask.kept.items(), key=str)))


def no_key_is_executed_twice(h):
    for name, (_, arrivals, _) in h.by_name.items():
        executed = [a.n for a in arrivals if a.executed]
        if len(executed) > 1 and name[0] != "/again":
            yield name, f"executed by arrivals {executed}"


def nothing_is_sent_again_that_was_not_refused_before_any_effect(h):
    for name, (_, arrivals, _) in h.by_name.items():
        if name[0] not in NEVER_AGAIN:
            continue
        for earlier, later in zip(arrivals, arrivals[1:]):
            if not earlier.refused or later.at < earlier.answered_at:
                yield name, f"arrival {later.n} came after {earlier.n}"


def resends_stay_within_their_window_and_number(h):
    for name, (_, arrivals, rows) in h.by_name.items():
        if name[0] != "/resend":
            continue
        count = 0
        for arrival in arrivals:
            count += 1
            if count > h.MAX_ATTEMPTS:
                yield name, f"arrival {arrival.n} is attempt {count}"
            if count == 1 and arrival.refused:
                count = 0
        for row in rows:
            claims = [e for e in row.positive.values() if e["kind"] == CLAIM]
            if len(claims) >= h.MAX_ATTEMPTS:
                yield name, f"{len(claims)} resends: {row}"
            for claim in claims:
                after = moment(claim["at"]) - moment(row.op["created_at"])
                if after > h.WINDOW + 2:  # it is decided a little before
                    yield name, f"resent {after:.1f} s after the first attempt: {row}"


def what_is_sent_again_is_the_same(h):
    asked = {ask.name for ask in h.asks}
    for name, (_, arrivals, _) in h.by_name.items():
        if None not in name and name not in asked:
            yield name, f"no client has asked for what arrived: {arrivals[0]}"
        whole = [a for a in arrivals if a.whole]
        for earlier, later in zip(whole, whole[1:]):
            if name[0] == "/resend" and earlier.body != later.body and not earlier.refused:
                yield name, f"arrival {later.n} says something else than {earlier.n}"


def every_answer_is_the_upstreams_to_that_account_key_and_content(h):
    answers = {a.answer["body"]: a for a in h.arrivals if a.answer}
    for ask in forwarded(h.asks) + [a for a in h.asks if a.replayed]:
        arrival = answers.get(ask.body)
        if not arrival or arrival.answer["status"] != ask.status:
            yield ask.name, f"the upstream never said what the client heard: {ask}"
        elif ask.kept != {**dict.fromkeys(ask.kept), **dict(arrival.answer["kept"])}:
            yield ask.name, f"fields differ from {arrival.answer['kept']}: {ask}"
        elif (arrival.name, arrival.content) != (
                ask.name, tuple(sorted(json.loads(ask.content).items()))):
            yield ask.name, f"this is the answer to {arrival.name} {arrival.body}: {ask}"
        elif ask.began > arrival.answered_at and not ask.replayed:
            yield ask.name, f"passed on though asked for later than it was made: {ask}"


def only_results_are_replayed_and_all_replays_are_equal(h):
    for name, (asks, _, _) in h.by_name.items():
        known = succeeded(asks)
        if len({result(a) for a in known}) > 1 or len({a.request_id for a in known}) > 1:
            yield name, "two results"
        for ask in known:
            if ask.status not in STORE:
                yield name, f"no result, and replayed: {ask}"
        if len([a for a in forwarded(asks) if a.result and a.status in STORE]) > 1 and name[0] != "/again":
            yield name, "two clients were the first"


def no_answered_success_is_lost(h):
    for name, (asks, _, _) in h.by_name.items():
        for first in succeeded(asks):
            for later in asks:
                if later.began <= first.ended or later.lost or later.code in ELSEWHERE:
                    continue
                if later.content != first.content:
                    good = later.code == MISMATCH
                elif len(first.body) > h.MAX_BODY:
                    good = later.code == GONE
                else:
                    good = later.replayed
                if not good:
                    yield name, f"after {first} came {later}"


def one_content_is_refused_and_the_other_is_not(h):
    owners, says = {}, collections.defaultdict(lambda: (set(), set()))
    for ask in h.asks:
        if ask.lost or ask.code in ELSEWHERE or not ask.request_id:
            continue
        says[ask.request_id][ask.code == MISMATCH].add(ask.content)
        if owners.setdefault(ask.request_id, ask.name) != ask.name:
            yield ask.name, f"{ask.request_id} is also {owners[ask.request_id]}"
    for request_id, (taken, refused) in says.items():
        if taken & refused or len(taken) > 1:
            yield owners[request_id], f"{request_id} took {taken} and refused {refused}"


def it_is_never_said_that_nothing_was_done_where_something_may_have_been(h):
    for name, (asks, arrivals, _) in h.by_name.items():
        if name[0] == "/again":
            continue  # what may be done twice is forgotten when its lease runs out
        started = [a.at for a in arrivals if not a.refused]
        for ask in asks:
            if ask.may_have_executed is False and any(at < ask.began for at in started):
                yield name, f"it was at the upstream before: {ask}"


def only_expected_refusals_are_given(h):
    for ask in h.asks:
        if ask.code and (ask.code not in EXPECTED or
                         (ask.status == 409) != (ask.code == MISMATCH)):
            yield ask.name, f"unexpected: {ask}"


def every_key_has_a_last_answer(h):
    for name, last in h.final.items():
        codes = {ask.code for ask in last}
        if not codes <= {None, MISMATCH, GONE, "idempotency_result_unknown"} or codes == {MISMATCH}:
            yield name, "the last answers are " + ", ".join(map(str, last))


def a_crash_is_recovered_from_where_the_route_says_how(h):
    for name, last in h.final.items():
        if name[0] in NEVER_AGAIN or not name[2].startswith("calm-"):
            continue
        asks = h.by_name[name][0]
        in_time = asks[1].ended < asks[0].began + h.WINDOW - 1  # a busy machine may be late
        if in_time and all(ask.code for ask in last):
            yield name, "the last answers are " + ", ".join(map(str, last))


def no_record_is_stuck_in_flight(h):
    for row in h.rows:
        if row.state == "in flight":
            yield row.name, str(row)


def every_unknown_record_is_listed_and_no_other(h):
    for row in h.rows:
        if (row.state == "unknown") != (row.attention is not None):
            yield row.name, str(row)


def no_record_has_two_ends(h):
    for row in h.rows:
        kinds = [e["kind"] for e in row.positive.values()]
        slots = list(row.positive)
        if any(kind in (COMPLETED, RELEASED) for kind in kinds[:-1]):
            yield row.name, f"something follows an end: {row}"
        if slots != list(range(slots[0], slots[0] + len(slots))) if slots else False:
            yield row.name, f"a slot was left out: {row}"


def a_key_stands_for_one_record_and_a_released_one_has_none(h):
    for row in h.rows:
        if row.has_key == (row.state == "released"):
            yield row.name, str(row)


def no_operation_is_stopped(h):
    for stop in h.stops:
        yield ("everything",), f"a stop was raised: {stop}"


def what_the_ledger_holds_is_what_the_upstream_said(h):
    for name, (_, arrivals, rows) in h.by_name.items():
        for row in rows:
            end = list(row.positive.values())[-1] if row.positive else {}
            said = {a.answer["body"] for a in arrivals
                    if a.answer and a.answer["status"] == end.get("status")}
            if row.state == "completed" and end["body"] is not None and end["body"] not in said:
                yield name, f"{row} holds {end['body']!r}"
    for name, last in h.final.items():
        held = {r.state for r in h.by_name[name][2] if r.has_key}
        told = ["completed" if not a.code or a.code == GONE else "unknown"
                for a in last if a.code != MISMATCH]
        if told and told[-1] not in held:
            yield name, f"the ledger says {held}, the client was told {told[-1]}"


CHECKS = (
    no_key_is_executed_twice,
    nothing_is_sent_again_that_was_not_refused_before_any_effect,
    resends_stay_within_their_window_and_number,
    what_is_sent_again_is_the_same,
    every_answer_is_the_upstreams_to_that_account_key_and_content,
    only_results_are_replayed_and_all_replays_are_equal,
    no_answered_success_is_lost,
    one_content_is_refused_and_the_other_is_not,
    it_is_never_said_that_nothing_was_done_where_something_may_have_been,
    only_expected_refusals_are_given,
    every_key_has_a_last_answer,
    a_crash_is_recovered_from_where_the_route_says_how,
    no_record_is_stuck_in_flight,
    every_unknown_record_is_listed_and_no_other,
    no_record_has_two_ends,
    a_key_stands_for_one_record_and_a_released_one_has_none,
    no_operation_is_stopped,
    what_the_ledger_holds_is_what_the_upstream_said,
)
