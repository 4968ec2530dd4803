"""What must hold, whatever went wrong. Decided by what others wrote down: the clients their answers,
the upstream its arrivals, the ledger its rows. Nothing here asks the gateways.

Each function of CHECKS is a promise, and yields what breaks it: (name of the key, what happened).
"""
import collections
import json

from history import CLAIM, COMPLETED, ELSEWHERE, GONE, RELEASED, History, moment

STORE = set(range(200, 300)) | {301, 302, 303, 402, 409, 410, 422}
RESEND_STORE = set(range(200, 300)) | {402}
MISMATCH = "idempotency_payload_mismatch"
EXPECTED = ELSEWHERE | {MISMATCH, GONE, "idempotency_in_progress", "idempotency_result_unknown",
                        "upstream_unreachable"}
NEVER_AGAIN = {"/hold", "/deliver", "/stream"}  # routes that send once whatever happens
ONCE_A_RECORD = {"/lookup", "/people", "/short"}  # and these may have several records of a key
LOOKUP, OPERATOR = 1, 2  # who else says how a record ended: `source`; the attempt itself is 0


def forwarded(asks):
    """Answers of the upstream that were passed on to the client for which they were made."""
    return [a for a in asks if not a.lost and not a.code and not a.replayed]


def succeeded(asks):
    """Answers by which the client knows its result, as the upstream or a lookup gave it."""
    return [a for a in asks if a.result and not a.resolved and (a.replayed or a.status in STORE)]


def as_results(asks):
    """The same, by what must be one result: a key, or a record where keys may become new again."""
    found = collections.defaultdict(list)
    for ask in succeeded(asks):
        found[ask.request_id if ask.path in History.TOMBSTONE else ask.name].append(ask)
    return found.values()


def result(ask):
    return (ask.status, ask.body, tuple(sorted(ask.kept.items(), key=str)))


def no_key_is_executed_twice(h):
    for name, (_, arrivals, _) in h.by_name.items():
        executed = [a for a in arrivals if a.executed]
        for together in h.of_records(executed) if name[0] in h.TOMBSTONE else [executed]:
            if len(together) > 1 and name[0] != "/again":
                yield name, f"executed by arrivals {[a.n for a in together]}"


def nothing_is_sent_again_that_was_not_refused_before_any_effect(h):
    for name, (_, arrivals, _) in h.by_name.items():
        for earlier, later in zip(arrivals, arrivals[1:]) if name[0] in NEVER_AGAIN else ():
            if not earlier.refused or later.at < earlier.answered_at:
                yield name, f"arrival {later.n} came after {earlier.n}"
        for together in h.of_records(arrivals) if name[0] in ONCE_A_RECORD else ():
            if len(together) > 1:
                yield name, f"arrivals {[a.n for a in together]} are of one record"


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
                at = moment(claim["at"])
                after = at - moment(row.op["created_at"])
                # It is decided a little before; what is written down too late by then is not sent.
                sent = any(a.at + h.offset > at - 0.1 for a in arrivals)
                if after > h.WINDOW + 2 and sent:
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
    for ask in forwarded(h.asks) + [a for a in h.asks if a.replayed and not a.resolved]:
        arrival = answers.get(ask.body)
        if ask.recovered:
            if (ask.status, ask.body, ask.kept) != (201, "", {
                    **dict.fromkeys(ask.kept), "Location": ask.kept.get("Location")}) or \
                    ask.kept["Location"] not in things(h.by_name[ask.name][1]):
                yield ask.name, f"no lookup can have found this: {ask} {ask.kept}"
        elif not arrival or arrival.answer["status"] != ask.status:
            yield ask.name, f"the upstream never said what the client heard: {ask}"
        elif ask.kept != {**dict.fromkeys(ask.kept), **dict(arrival.answer["kept"])}:
            yield ask.name, f"fields differ from {arrival.answer['kept']}: {ask}"
        elif (arrival.name, arrival.content) != (
                ask.name, tuple(sorted(json.loads(ask.content).items()))):
            yield ask.name, f"this is the answer to {arrival.name} {arrival.body}: {ask}"
        elif ask.began > arrival.answered_at and not ask.replayed:
            yield ask.name, f"passed on though asked for later than it was made: {ask}"


def things(arrivals):
    """What was made by those that had their effect, as it is called in answers."""
    return {f"/things/{a.n}" for a in arrivals if a.executed}


def only_results_are_replayed_and_all_replays_are_equal(h):
    for name, (asks, _, _) in h.by_name.items():
        for known in as_results(asks):
            if len({result(a) for a in known}) > 1 or len({a.request_id for a in known}) > 1:
                yield name, "two results"
            if len([a for a in forwarded(known)]) > 1 and name[0] != "/again":
                yield name, "two clients were the first"
        for ask in succeeded(asks):
            if ask.status not in STORE:
                yield name, f"no result, and replayed: {ask}"


def no_answered_success_is_lost(h):
    for name, (asks, _, rows) in h.by_name.items():
        for first in succeeded(asks):
            for later in asks:
                if later.began <= first.ended or later.lost or later.code in ELSEWHERE:
                    continue
                if name[0] in h.TOMBSTONE and later.request_id != first.request_id:
                    good = any(first.ended < r.began - h.offset < later.ended for r in rows)
                elif later.content != first.content:
                    good = later.code == MISMATCH
                elif len(first.body) > h.max_body(name):
                    good = later.code == GONE
                else:
                    good = later.replayed or name[0] in h.RETENTION and later.code == GONE
                if not good:
                    yield name, f"after {first} came {later}"


def who_got_a_whole_answer_got_what_is_recorded(h):
    answers = {a.answer["body"]: a for a in h.arrivals if a.answer}
    for ask in forwarded(h.asks):
        arrival = answers.get(ask.body)
        if not ask.recorded or not arrival or len(ask.body) <= h.max_body(ask.name):
            continue  # smaller ones are promised more, see above
        row = h.record_of(arrival)
        says = (row.end.get("kind"), row.end.get("status")) if row else None
        if arrival.answer["how"].endswith("half"):
            yield ask.name, f"the upstream never came to this answer's end: {ask}"
        elif ask.body in h.open_ended and says == (COMPLETED, ask.status):
            yield ask.name, f"nobody knows whether it is whole: {ask}, {row}"
        elif ask.body in h.open_ended:
            continue
        elif ask.path != "/again" and (ask.status in STORE) != (says == (COMPLETED, ask.status)):
            yield ask.name, f"{ask} is recorded as {row}"


def what_is_over_is_not_given_out_any_more_and_nothing_else_is_gone(h):
    for ask in h.asks:
        row, retention = h.record_at(ask.name, ask.ended), h.RETENTION.get(ask.path)
        if not retention or ask.lost or not row or row.end.get("source", 0) >= OPERATOR or \
                any(len(a.answer["body"]) > h.max_body(a.name) for a in h.by_name[ask.name][1] if a.answer):
            continue
        known_at = min((a.ended for a in succeeded(h.of_id[ask.request_id])), default=ask.ended)
        since = moment(row.end["at"]) if row.end.get("slot", 1) > 1 else row.began
        if ask.code == GONE and ask.ended + h.offset < since + retention - 0.05:
            yield ask.name, f"gone too early: {ask}; {row}"
        if ask.replayed and ask.began > known_at + retention + 0.05:
            yield ask.name, f"given out after its time, which began before {known_at:.3f}: {ask}"


def a_key_is_new_again_only_behind_the_tombstone_of_what_it_stood_for(h):
    for name, (_, _, rows) in h.by_name.items():
        kept = [row for row in rows if row.state != "released" and name[0] != "/again"]
        for earlier, later in zip(kept, kept[1:]):
            if later.began < earlier.over_at - 0.05:
                yield name, f"{earlier} was followed by {later}"


def what_had_its_effect_is_never_released(h):
    for arrival in h.arrivals:
        if not arrival.executed or arrival.name[0] == "/again" or None in arrival.name:
            continue
        row = h.record_of(arrival)
        if row is None or row.state == "released":
            yield arrival.name, f"{arrival} stands as {row}"


def a_lookup_releases_only_behind_the_lease_and_a_second_look(h):
    for row in h.rows:
        if row.state != "released" or row.end.get("source") != LOOKUP:
            continue
        waited = moment(row.end["at"]) - moment(row.op["lease_until"])
        if row.name[0] != "/lookup" or waited < h.NOT_FOUND_AFTER:
            yield row.name, f"released {waited:.2f} s after its lease: {row}"


def what_was_done_is_found_by_a_lookup_which_is_told_with_the_answer(h):
    for name, (asks, arrivals, rows) in h.by_name.items():
        if name[0] != "/lookup":
            continue
        by_lookup = any(r.state == "completed" and r.end.get("source") == LOOKUP for r in rows)
        told = [a for a in h.final.get(name, ()) if a.code != MISMATCH]
        if things(arrivals) and any(a.code not in (None, GONE) for a in told[-1:]):
            yield name, "the last answers are " + ", ".join(map(str, told))
        for ask in asks:
            if bool(ask.recovered) > by_lookup or (by_lookup and ask.replayed and not ask.recovered):
                yield name, f"by a lookup? {by_lookup}: {ask}"
        for row in rows:
            if row.end.get("source") == LOOKUP and row.state == "completed" and \
                    row.end["receipt"] not in things(arrivals):
                yield name, f"{row} was found, with {row.end['receipt']}"


def what_operators_say_is_told_as_theirs_and_nothing_else_is(h):
    said = collections.defaultdict(list)
    for one in h.said:
        said[one.name].append(one)
    for ask in h.asks:
        if not ask.resolved or ask.code:
            continue
        if not any(s.body == ask.body and s.request_id in (None, ask.request_id) and
                   s.told != "refused" and s.began < ask.ended for s in said[ask.name]):
            yield ask.name, f"no operator has said so: {ask}"
        if any(a.result and not a.resolved and (a.replayed or a.status in STORE)
               for a in h.of_id[ask.request_id]):
            yield ask.name, f"an operator changed what the upstream said: {ask}"
    for name, last in h.final.items():
        ends = [r.end for r in h.by_name[name][2] if r.has_key and r.state == "completed"]
        for ask in last if ends and name[0] not in h.RETENTION else ():
            if ask.replayed and (bool(ask.resolved) != (ends[-1].get("source", 0) >= OPERATOR) or
                                 ask.resolved and ask.body != ends[-1]["body"]):
                yield name, f"{ends[-1]} is told as {ask}"


def who_resolves_a_record_is_told_whether_that_stands(h):
    for one in h.said:
        events = [e for row in h.by_name[one.name][2] for e in row.events.values()
                  if e.get("note") == one.evidence and e["slot"] > 0]
        if one.told == "done" and [e["kind"] for e in events] != [one.kind]:
            yield one.name, f"{one} has left {events}"
        if one.told == "refused" and events:
            yield one.name, f"{one} has left {events}"


def an_erased_account_is_gone_and_executes_nothing_again(h):
    if not h.erased:
        return
    for left in h.erased.left:
        yield ("erased",), left
    executed = {name for name, _ in h.erased.executed}
    for ask, state in h.erased.asks:
        codes = {"completed": {GONE}, "unknown": {"idempotency_result_unknown"}}[state]
        if ask.lost or ask.code in ELSEWHERE | {"idempotency_in_progress"}:
            continue
        # what is unknown may be found or sent again where the route says so, and what is over is new
        if state == "unknown" and ask.path not in NEVER_AGAIN or ask.path in h.TOMBSTONE:
            codes |= {None}
        if ask.code not in codes:
            yield ask.name, f"{state} before it was erased, and now {ask}"
        if ask.name in executed and None not in codes:
            yield ask.name, f"executed after it was erased: {ask}"


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
        started = [(a.at, h.record_of(a)) for a in arrivals if not a.refused]
        for ask in asks if started else ():
            # what was released, or is over, is forgotten; it was looked at elsewhere
            if ask.may_have_executed is False and any(
                    at < ask.began and not (row and row.state == "released") and
                    not (row and row.over_at < ask.ended + h.offset) for at, row in started):
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
        if name[0] not in ("/resend", "/again", "/lookup") or not name[2].startswith("calm-"):
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
        events, slots = list(row.positive.values()), list(row.positive)
        for earlier, later in zip(events, events[1:]):
            # operators may amend what operators said, and nobody anything else
            amended = earlier.get("source", 0) >= OPERATOR and later.get("source", 0) >= OPERATOR
            if earlier["kind"] in (COMPLETED, RELEASED) and not amended:
                yield row.name, f"something follows an end: {row}"
        if slots != list(range(slots[0], slots[0] + len(slots))) if slots else False:
            yield row.name, f"a slot was left out: {row}"


def a_key_stands_for_one_record_and_a_released_one_has_none(h):
    for row in h.rows:
        if row.has_key == (row.state == "released") and not (
                row.over_at < h.read_at and not row.has_key):
            yield row.name, str(row)


def no_operation_is_stopped(h):
    for stop in h.stops:
        yield ("everything",), f"a stop was raised: {stop}"


def what_the_ledger_holds_is_what_the_upstream_said(h):
    for name, (_, arrivals, rows) in h.by_name.items():
        for row in rows:
            said = {a.answer["body"] for a in arrivals
                    if a.answer and a.answer["status"] == row.end.get("status")}
            if row.state == "completed" and not row.end.get("source") and \
                    row.end["body"] is not None and row.end["body"] not in said:
                yield name, f"{row} holds {row.end['body']!r}"
    for name, last in h.final.items():
        if name[0] in h.TOMBSTONE:
            continue  # it may be over meanwhile
        held = {r.state for r in h.by_name[name][2] if r.has_key}
        if not held and h.by_name[name][2] and h.by_name[name][2][-1].end.get("source") == LOOKUP:
            continue  # released since then
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
    who_got_a_whole_answer_got_what_is_recorded,
    what_is_over_is_not_given_out_any_more_and_nothing_else_is_gone,
    a_key_is_new_again_only_behind_the_tombstone_of_what_it_stood_for,
    what_had_its_effect_is_never_released,
    a_lookup_releases_only_behind_the_lease_and_a_second_look,
    what_was_done_is_found_by_a_lookup_which_is_told_with_the_answer,
    what_operators_say_is_told_as_theirs_and_nothing_else_is,
    who_resolves_a_record_is_told_whether_that_stands,
    an_erased_account_is_gone_and_executes_nothing_again,
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
