"""Histories with one lie each: every promise of the checker must be broken by the one made for it.

A checker that says "ok" to everything would pass every run. So before each run a small honest history
is told, to which all promises hold, and then once more for each lie.
"""
import copy
import io
import json

import checker
from clients import CONTENTS, Ask


class Story:
    """Ann orders a book, which is stored, asks again, and is given the answer again; a lamp under the
    same key is refused. Bob's order, under the same key, is cut off and is unknown."""

    NAME, BOB = ("/hold", "ann", "key-1"), ("/hold", "bob", "key-1")
    RESENT, DAY = ("/resend", "ann", "key-2"), "2026-01-01T00:00:00+00:00"

    def __init__(self):
        self.lines, self.asks, self.final, self.records, self.stops = [], [], {}, [], []
        self.clock = 0.0
        body = self.arrives(1, self.NAME, 201)
        self.first = self.hears(self.NAME, 201, body, "req_1")
        self.second = self.hears(self.NAME, 201, body, "req_1", replayed=True)
        self.lamp = self.hears(self.NAME, 409, "{}", "req_1", checker.MISMATCH, content=CONTENTS[1])
        self.arrives(2, self.BOB, None)
        self.lost = self.hears(self.BOB, 502, '{"may_have_executed": true}', "req_2",
                               "idempotency_result_unknown")
        self.final = {self.NAME: [self.second, self.lamp], self.BOB: [self.lost]}
        self.row(1, self.NAME, [(1, 2, 201, body)])
        self.row(2, self.BOB, [(1, 3, None, None)], listed=True)

    def tick(self):
        self.clock += 1
        return self.clock

    def arrives(self, n, name, status, effect=True, content=CONTENTS[0]):
        path, account, key = name
        self.lines.append({"what": "arrived", "t": self.tick(), "n": n, "whole": True, "path": path,
                           "account": account, "key": key, "body": content})
        if effect:
            self.lines.append({"what": "effect", "t": self.tick(), "n": n})
        body = json.dumps({"arrival": n})
        if status:
            self.lines.append({"what": "answer", "t": self.clock + 1.5, "n": n, "status": status,
                               "how": "whole", "kept": [["X-Arrival", str(n)]], "body": body})
        return body

    def hears(self, name, status, body, request_id, code=None, replayed=False, content=CONTENTS[0]):
        ask = Ask(*name, content, "gateway")
        ask.began, ask.ended = self.tick(), self.tick()
        ask.status, ask.body, ask.request_id, ask.code = status, body, request_id, code
        ask.replayed, ask.recorded = replayed, True
        if code:
            ask.may_have_executed = json.loads(body).get("may_have_executed")
        else:
            ask.kept = {"X-Arrival": str(json.loads(body)["arrival"]), "ETag": None}
        self.asks.append(ask)
        return ask

    def row(self, op_id, name, events, listed=False, lease_left=-5.0):
        self.records.append({
            "op": {"op_id": op_id, "operation": f"torture.{name[0][1:]}", "account": name[1],
                   "key": name[2], "lease_left": lease_left, "created_at": self.DAY},
            "events": {slot: {"slot": slot, "kind": kind, "status": status, "body": body,
                              "at": self.DAY, "lease_left": lease_left}
                       for slot, kind, status, body in events},
            "key": {"op_id": op_id}, "attention": {} if listed else None})

    def history(self):
        told = copy.deepcopy(self)
        file = io.StringIO("".join(json.dumps(line) + "\n" for line in told.lines))
        return checker.History(told.asks, checker.read_arrivals(file),
                               [checker.Row(**record) for record in told.records],
                               told.final, told.stops)


def executed_twice(s):
    s.arrives(3, s.NAME, 201)


def sent_again_without_effect(s):
    s.arrives(3, s.BOB, 429, effect=False)


def resent_too_often(s):
    for n in range(3, 9):
        s.arrives(n, s.RESENT, 500, effect=False)


def resent_too_late(s):
    s.row(3, s.RESENT, [(1, 3, None, None), (2, 1, None, None), (3, 2, 201, "{}")])
    s.records[-1]["events"][2]["at"] = "2026-01-01T00:02:00+00:00"


def resent_with_other_content(s):
    s.arrives(3, s.RESENT, 201)
    s.arrives(4, s.RESENT, 201, effect=False, content=CONTENTS[1])


def sent_under_another_key(s):
    s.arrives(3, ("/resend", "ann", "ann-key-1"), 201)


def answer_of_another_account(s):
    s.hears(s.BOB, 201, s.first.body, "req_2", replayed=True)


def replay_with_another_field(s):
    s.second.kept = {"X-Arrival": "7", "ETag": None}


def two_results(s):
    s.hears(s.NAME, 201, s.arrives(3, s.NAME, 201), "req_1", replayed=True)


def refusal_replayed(s):
    s.hears(s.NAME, 429, s.arrives(3, s.NAME, 429, effect=False), "req_3", replayed=True)


def success_forgotten(s):
    s.hears(s.NAME, 503, "{}", "req_1", "idempotency_result_unknown")


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
    s.final[name] = [s.hears(name, 503, "{}", "req_3", "idempotency_result_unknown")
                     for _ in range(2)]


def lease_without_end(s):
    s.records[1]["events"], s.records[1]["op"]["lease_left"] = {}, 60.0


def unknown_not_listed(s):
    s.records[1]["attention"] = None


def completed_listed(s):
    s.records[0]["attention"] = {}


def two_ends(s):
    s.row(3, s.BOB, [(1, 2, 201, "{}"), (2, 2, 201, "{}")])


def slot_left_out(s):
    s.row(3, s.BOB, [(1, 3, None, None), (3, 3, None, None)], listed=True)


def released_with_its_key(s):
    s.row(3, s.BOB, [(1, 4, None, None)])


def completed_without_its_key(s):
    s.records[0]["key"] = None


def stopped(s):
    s.stops.append({"reason": "duplicate_effect"})


def another_body_stored(s):
    s.records[0]["events"][1]["body"] = '{"arrival": 9}'


def told_unknown_held_completed(s):
    s.final[s.NAME] = [s.lost]


LIES = {
    "no_key_is_executed_twice": [executed_twice],
    "nothing_is_sent_again_that_was_not_refused_before_any_effect": [sent_again_without_effect],
    "resends_stay_within_their_window_and_number": [resent_too_often, resent_too_late],
    "what_is_sent_again_is_the_same": [resent_with_other_content, sent_under_another_key],
    "every_answer_is_the_upstreams_to_that_account_key_and_content": [
        answer_of_another_account, replay_with_another_field],
    "only_results_are_replayed_and_all_replays_are_equal": [two_results, refusal_replayed],
    "no_answered_success_is_lost": [success_forgotten],
    "one_content_is_refused_and_the_other_is_not": [equal_content_refused, other_content_taken],
    "it_is_never_said_that_nothing_was_done_where_something_may_have_been": [effect_denied],
    "only_expected_refusals_are_given": [internal_error],
    "every_key_has_a_last_answer": [last_answer_in_progress],
    "a_crash_is_recovered_from_where_the_route_says_how": [crash_not_recovered_from],
    "no_record_is_stuck_in_flight": [lease_without_end],
    "every_unknown_record_is_listed_and_no_other": [unknown_not_listed, completed_listed],
    "no_record_has_two_ends": [two_ends, slot_left_out],
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
