"""Histories with one lie each: every promise of the checker must be broken by the one made for it.

A checker that says "ok" to everything would pass every run. So before each run a small honest history
is told, to which all promises hold, and then once more for each lie.
"""
import copy
import datetime
import io
import json

import checker
import history
from clients import CONTENTS, Ask
from erasure import Erased
from people import Said

UNKNOWN = "idempotency_result_unknown"
BEGINS = history.moment("2026-01-01T00:00:00+00:00")  # when the clock of clients and upstream is 0


def day(clock):
    return datetime.datetime.fromtimestamp(BEGINS + clock, datetime.timezone.utc).isoformat()


class Story:
    """Ann orders a book, which is stored, asks again, and is given the answer again; a lamp under the
    same key is refused. Bob's order, under the same key, is cut off and is unknown. What comes then is
    told in functions of their own."""

    NAME, BOB = ("/hold", "ann", "key-1"), ("/hold", "bob", "key-1")
    RESENT = ("/resend", "ann", "key-2")
    LOOKED, MISSED = ("/lookup", "ann", "key-3"), ("/lookup", "bob", "key-3")
    RESOLVED, SHORT = ("/people", "ann", "key-4"), ("/short", "ann", "key-5")
    STREAMED, ERASED = ("/stream", "ann", "key-6"), ("/hold", "eve", "key-7")

    def __init__(self):
        self.lines, self.asks, self.final, self.records = [], [], {}, []
        self.more = {"stops": [], "said": []}
        self.clock = 0.0
        self.row(1, self.NAME, [(1, 2, 201, json.dumps({"arrival": 1}))])
        body = self.arrives(1, self.NAME, 201)
        self.first = self.hears(self.NAME, 201, body, "req_1")
        self.second = self.hears(self.NAME, 201, body, "req_1", replayed=True)
        self.lamp = self.hears(self.NAME, 409, "{}", "req_1", checker.MISMATCH, content=CONTENTS[1])
        self.row(2, self.BOB, [(1, 3, None, None)], listed=True)
        self.arrives(2, self.BOB, None)
        self.lost = self.hears(self.BOB, 502, '{"may_have_executed": true}', "req_2",
                               UNKNOWN)
        self.final = {self.NAME: [self.second, self.lamp], self.BOB: [self.lost]}
        for chapter in (self.found, self.missed, self.resolved, self.new_again, self.streamed, self.erased):
            chapter()

    def found(self):
        """A result that nobody heard of is found by a lookup."""
        self.row(3, self.LOOKED, [(1, 3, None, None), (2, 2, 201, "")], source=1, receipt="/things/3")
        self.arrives(3, self.LOOKED, None)
        self.hears(self.LOOKED, 502, '{"may_have_executed": true}', "req_3", UNKNOWN)
        self.recovered = self.hears(self.LOOKED, 201, "", "req_3", replayed=True)
        self.recovered.recovered, self.recovered.kept = "lookup", {"ETag": None, "Location": "/things/3"}
        self.final[self.LOOKED] = [self.recovered]

    def missed(self):
        """Nothing was done, and lookups say so; then it is."""
        self.row(4, self.MISSED, [(1, 3, None, None), (2, 4, None, None)], source=1, has_key=False)
        self.arrives(4, self.MISSED, None, effect=False)
        self.hears(self.MISSED, 502, '{"may_have_executed": true}', "req_4", UNKNOWN)
        self.clock += 13
        self.records[-1]["events"][2]["at"] = day(self.clock)
        self.row(5, self.MISSED, [(1, 2, 201, json.dumps({"arrival": 5}))])
        body = self.arrives(5, self.MISSED, 201)
        self.final[self.MISSED] = [self.hears(self.MISSED, 201, body, "req_5", replayed=True)]

    def resolved(self):
        """Olga has seen that it was done, and says so; Pete is too late."""
        self.row(6, self.RESOLVED, [(1, 3, None, None), (2, 2, 201, '{"by":"olga"}')],
                 source=2, note="olga-1")
        self.arrives(6, self.RESOLVED, None)
        self.hears(self.RESOLVED, 502, '{"may_have_executed": true}', "req_6", UNKNOWN)
        for who, told in (("olga", "done"), ("pete", "refused")):
            said = Said(f"{who}-1", {"name": self.RESOLVED, "logical_request_id": "req_6"}, "/things/6",
                        json.dumps({"by": who}, separators=(",", ":")))
            said.began, said.told = self.tick(), told
            self.more["said"].append(said)
        self.by_olga = self.hears(self.RESOLVED, 201, '{"by":"olga"}', "req_6", resolved="operator")
        self.final[self.RESOLVED] = [self.by_olga]

    def new_again(self):
        """A key is gone behind its retention, and new behind its tombstone."""
        self.row(7, self.SHORT, [(1, 2, 201, json.dumps({"arrival": 7}))], has_key=False)
        self.short = self.hears(self.SHORT, 201, self.arrives(7, self.SHORT, 201), "req_7")
        self.clock += 2
        self.gone = self.hears(self.SHORT, 410, "{}", "req_7", checker.GONE)
        self.clock += 2
        self.row(8, self.SHORT, [(1, 2, 201, json.dumps({"arrival": 8}))])
        self.hears(self.SHORT, 201, self.arrives(8, self.SHORT, 201), "req_8")

    def streamed(self):
        """What is too large is got once."""
        self.row(9, self.STREAMED, [(1, 2, 201, None)])
        body = self.arrives(9, self.STREAMED, 201, padding=20000)
        self.large = self.hears(self.STREAMED, 201, body, "req_9")
        self.final[self.STREAMED] = [self.hears(self.STREAMED, 410, "{}", "req_9", checker.GONE)]

    def erased(self):
        asks = []
        for n, (code, state) in enumerate(((checker.GONE, "completed"), (UNKNOWN, "unknown"))):
            asks.append((self.hears((*self.ERASED[:2], f"key-{n}"), 503, "{}", f"req_x{n}", code), state))
            self.asks.remove(asks[-1][0])
        self.more["erased"] = Erased(asks, [], [])

    def tick(self):
        self.clock += 1
        return self.clock

    def arrives(self, n, name, status, effect=True, content=CONTENTS[0], padding=0):
        path, account, key = name
        self.lines.append({"what": "arrived", "t": self.tick(), "n": n, "whole": True, "path": path,
                           "account": account, "key": key, "body": content})
        if effect:
            self.lines.append({"what": "effect", "t": self.tick(), "n": n})
        body = json.dumps({"arrival": n, **({"padding": "." * padding} if padding else {})})
        if status:
            self.lines.append({"what": "answer", "t": self.clock + 1.5, "n": n, "status": status,
                               "how": "whole", "kept": [["X-Arrival", str(n)]], "body": body})
        return body

    def hears(self, name, status, body, request_id, code=None, replayed=False, content=CONTENTS[0],
              resolved=None):
        ask = Ask(*name, content, "gateway")
        ask.began, ask.ended = self.tick(), self.tick()
        ask.status, ask.body, ask.request_id, ask.code = status, body, request_id, code
        ask.replayed, ask.recorded, ask.resolved = replayed or bool(resolved), True, resolved
        if code:
            ask.may_have_executed = json.loads(body).get("may_have_executed")
        elif body:
            ask.kept = {"X-Arrival": str(json.loads(body).get("arrival")), "ETag": None}
        self.asks.append(ask)
        return ask

    def row(self, op_id, name, events, listed=False, lease_left=-5.0, has_key=True, **last):
        at = day(self.clock)
        self.records.append({
            "op": {"op_id": op_id, "operation": f"torture.{name[0][1:]}", "account": name[1],
                   "key": name[2], "lease_left": lease_left, "created_at": at,
                   "lease_until": day(self.clock + 2.5)},
            "events": {slot: {"slot": slot, "kind": kind, "status": status, "body": body,
                              "at": at, "lease_left": lease_left}
                       for slot, kind, status, body in events},
            "key": {"op_id": op_id} if has_key else None, "attention": {} if listed else None})
        self.records[-1]["events"][events[-1][0]].update(last)

    def record(self, op_id):
        return next(r for r in self.records if r["op"]["op_id"] == op_id)

    def history(self):
        told = copy.deepcopy(self)
        file = io.StringIO("".join(json.dumps(line) + "\n" for line in told.lines))
        records = sorted(told.records, key=lambda r: r["op"]["created_at"])
        return history.History(told.asks, history.read_arrivals(file), [history.Row(**r) for r in records],
                               told.final, {**told.more, "offset": BEGINS})


def executed_twice(s):
    s.arrives(93, s.NAME, 201)


def sent_again_without_effect(s):
    s.arrives(93, s.BOB, 429, effect=False)


def resent_too_often(s):
    for n in range(90, 96):
        s.arrives(n, s.RESENT, 500, effect=False)


def resent_too_late(s):
    s.row(93, s.RESENT, [(1, 3, None, None), (2, 1, None, None), (3, 2, 201, "{}")])
    s.clock += 120
    s.records[-1]["events"][2]["at"] = day(s.clock)
    s.arrives(93, s.RESENT, 201)


def resent_with_other_content(s):
    s.arrives(93, s.RESENT, 201)
    s.arrives(94, s.RESENT, 201, effect=False, content=CONTENTS[1])


def sent_under_another_key(s):
    s.arrives(93, ("/resend", "ann", "ann-key-1"), 201)


def answer_of_another_account(s):
    s.hears(s.BOB, 201, s.first.body, "req_2", replayed=True)


def replay_with_another_field(s):
    s.second.kept = {"X-Arrival": "7", "ETag": None}


def two_results(s):
    s.hears(s.NAME, 201, s.arrives(93, s.NAME, 201), "req_1", replayed=True)


def refusal_replayed(s):
    s.hears(s.NAME, 429, s.arrives(93, s.NAME, 429, effect=False), "req_3", replayed=True)


def success_forgotten(s):
    s.hears(s.NAME, 503, "{}", "req_1", UNKNOWN)


def equal_content_refused(s):
    s.hears(s.BOB, 409, "{}", "req_2", checker.MISMATCH)


def other_content_taken(s):
    s.hears(s.NAME, 503, "{}", "req_1", "idempotency_in_progress", content=CONTENTS[1])


def effect_denied(s):
    s.hears(s.BOB, 503, '{"may_have_executed": false}', "req_2", "upstream_unreachable")


def internal_error(s):
    s.hears(s.BOB, 500, "{}", None, "internal_error")


def last_answer_in_progress(s):
    s.final[s.BOB] = [s.hears(s.BOB, 503, "{}", "req_2", "idempotency_in_progress")]


def crash_not_recovered_from(s):
    name = ("/resend", "ann", "calm-1")
    s.final[name] = [s.hears(name, 503, "{}", "req_3", UNKNOWN)
                     for _ in range(2)]


def lease_without_end(s):
    s.records[1]["events"], s.records[1]["op"]["lease_left"] = {}, 60.0


def unknown_not_listed(s):
    s.records[1]["attention"] = None


def completed_listed(s):
    s.records[0]["attention"] = {}


def two_ends(s):
    s.row(93, s.BOB, [(1, 2, 201, "{}"), (2, 2, 201, "{}")])


def slot_left_out(s):
    s.row(93, s.BOB, [(1, 3, None, None), (3, 3, None, None)], listed=True)


def released_with_its_key(s):
    s.row(93, s.BOB, [(1, 4, None, None)])


def completed_without_its_key(s):
    s.records[0]["key"] = None


def stopped(s):
    s.more["stops"].append({"reason": "duplicate_effect"})


def another_body_stored(s):
    s.records[0]["events"][1]["body"] = '{"arrival": 9}'


def told_unknown_held_completed(s):
    s.final[s.NAME] = [s.lost]


def two_arrivals_of_one_record(s):
    s.arrives(93, s.RESOLVED, None, effect=False)


def cut_off_and_taken_for_whole(s):
    line = next(l for l in s.lines if l["n"] == 9 and l["what"] == "answer")
    line["how"] = "large-chunked-half"


def stored_though_it_may_be_cut_off(s):
    cut_off_and_taken_for_whole(s)
    next(l for l in s.lines if l["n"] == 9 and l["what"] == "answer")["how"] = "large-until-close"


def whole_and_not_recorded(s):
    s.record(9)["events"][1].update(kind=3, status=None)


def replayed_behind_its_retention(s):
    s.clock = s.short.ended + 2
    s.hears(s.SHORT, 201, s.short.body, "req_7", replayed=True)


def gone_too_early(s):
    s.gone.began, s.gone.ended = s.short.ended - 2.6, s.short.ended - 2.5


def new_before_the_tombstone(s):
    s.record(8)["op"]["created_at"] = day(s.gone.began - 3)


def purged_while_unknown(s):
    s.record(7)["events"][1].update(kind=3, status=None, body=None)


def second_record(s):
    s.row(93, s.BOB, [(1, 2, 201, "{}")])


def released_though_it_was_done(s):
    s.record(6)["events"][2]["kind"] = 4


def forgotten_though_it_was_done(s):
    s.records.remove(s.record(6))


def released_at_the_first_look(s):
    s.record(4)["events"][2]["at"] = day(history.moment(s.record(4)["op"]["lease_until"]) - BEGINS + 4)


def released_by_a_lookup_elsewhere(s):
    s.row(93, s.BOB, [(1, 3, None, None), (2, 4, None, None)], source=1, has_key=False)
    s.records[-1]["events"][2]["at"] = day(s.clock + 100)


def not_found_in_the_end(s):
    s.final[s.LOOKED] = [s.hears(s.LOOKED, 503, "{}", "req_3", UNKNOWN)]


def found_and_not_told_so(s):
    s.recovered.recovered = None


def told_to_be_found_and_was_not(s):
    s.record(3)["events"][2]["source"] = 0


def found_something_else(s):
    s.record(3)["events"][2]["receipt"] = "/things/5"


def recovered_what_is_not_there(s):
    s.recovered.kept["Location"] = "/things/5"


def told_what_nobody_said(s):
    s.by_olga.body = '{"by":"nobody"}'


def told_what_was_refused(s):
    s.by_olga.body = '{"by":"pete"}'


def operator_above_the_upstream(s):
    s.hears(s.RESOLVED, 201, json.dumps({"arrival": 6}), "req_6", replayed=True)


def told_other_than_last_said(s):
    s.record(6)["events"][2]["body"] = '{"by":"ada"}'


def told_as_the_upstreams_own(s):
    s.record(6)["events"][2]["source"] = 0


def said_and_lost(s):
    s.record(6)["events"][2]["note"] = None


def refused_and_done(s):
    s.record(6)["events"][3] = {**s.record(6)["events"][2], "slot": 3, "note": "pete-1"}


def operator_amended_the_upstream(s):
    s.record(1)["events"][2] = {**s.record(1)["events"][1], "slot": 2, "source": 2}


def given_out_after_erasure(s):
    ask = s.more["erased"].asks[0][0]
    ask.code, ask.status, ask.replayed = None, 201, True


def unknown_forgotten_by_erasure(s):
    s.more["erased"].asks[1][0].code = None


def executed_after_erasure(s):
    s.more["erased"].executed.append((s.more["erased"].asks[0][0].name, 93))


def left_by_erasure(s):
    s.more["erased"].left.append("op: eve")


LIES = {
    "no_key_is_executed_twice": [executed_twice],
    "nothing_is_sent_again_that_was_not_refused_before_any_effect": [
        sent_again_without_effect, two_arrivals_of_one_record],
    "resends_stay_within_their_window_and_number": [resent_too_often, resent_too_late],
    "what_is_sent_again_is_the_same": [resent_with_other_content, sent_under_another_key],
    "every_answer_is_the_upstreams_to_that_account_key_and_content": [
        answer_of_another_account, replay_with_another_field, recovered_what_is_not_there],
    "only_results_are_replayed_and_all_replays_are_equal": [two_results, refusal_replayed],
    "no_answered_success_is_lost": [success_forgotten],
    "who_got_a_whole_answer_got_what_is_recorded": [
        cut_off_and_taken_for_whole, stored_though_it_may_be_cut_off, whole_and_not_recorded],
    "what_is_over_is_not_given_out_any_more_and_nothing_else_is_gone": [
        replayed_behind_its_retention, gone_too_early],
    "a_key_is_new_again_only_behind_the_tombstone_of_what_it_stood_for": [
        new_before_the_tombstone, purged_while_unknown, second_record],
    "what_had_its_effect_is_never_released": [released_though_it_was_done, forgotten_though_it_was_done],
    "a_lookup_releases_only_behind_the_lease_and_a_second_look": [
        released_at_the_first_look, released_by_a_lookup_elsewhere],
    "what_was_done_is_found_by_a_lookup_which_is_told_with_the_answer": [
        not_found_in_the_end, found_and_not_told_so, told_to_be_found_and_was_not, found_something_else],
    "what_operators_say_is_told_as_theirs_and_nothing_else_is": [
        told_what_nobody_said, told_what_was_refused, operator_above_the_upstream, told_other_than_last_said,
        told_as_the_upstreams_own],
    "who_resolves_a_record_is_told_whether_that_stands": [said_and_lost, refused_and_done],
    "an_erased_account_is_gone_and_executes_nothing_again": [
        given_out_after_erasure, unknown_forgotten_by_erasure, executed_after_erasure, left_by_erasure],
    "one_content_is_refused_and_the_other_is_not": [equal_content_refused, other_content_taken],
    "it_is_never_said_that_nothing_was_done_where_something_may_have_been": [effect_denied],
    "only_expected_refusals_are_given": [internal_error],
    "every_key_has_a_last_answer": [last_answer_in_progress],
    "a_crash_is_recovered_from_where_the_route_says_how": [crash_not_recovered_from],
    "no_record_is_stuck_in_flight": [lease_without_end],
    "every_unknown_record_is_listed_and_no_other": [unknown_not_listed, completed_listed],
    "no_record_has_two_ends": [two_ends, slot_left_out, operator_amended_the_upstream],
    "a_key_stands_for_one_record_and_a_released_one_has_none": [
        released_with_its_key, completed_without_its_key],
    "no_operation_is_stopped": [stopped],
    "what_the_ledger_holds_is_what_the_upstream_said": [
        another_body_stored, told_unknown_held_completed],
}


def unnoticed():
    """The lies that a check does not see, and the truths that it takes for one."""
    for check in checker.CHECKS:
        for name, what in check(Story().history()):
            yield f"{check.__name__}: {name}: {what}, and all was well"
        for lie in LIES[check.__name__]:
            story = Story()
            lie(story)
            if not list(check(story.history())):
                yield f"{check.__name__} does not see {lie.__name__}"
