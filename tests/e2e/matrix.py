"""What test_matrix*.py stand on: what a record says in one word, and what each answer must look like.

A record is told by SQL over the tables, not by the program's own commands; and where the tables
contradict each other, that is an error here.
"""
import json
import time

from harness import together, until

WORDS = {0: "in flight", 1: "claimed", 2: "completed", 3: "unknown", 4: "released", 5: "stale"}


def records(t, key):
    """All records that this key had, the last one last: (word, cause, its late slots)."""
    found = t.rows(f"""
SELECT json_build_object(
  'kind', (SELECT CASE WHEN s.kind < 2 AND s.lease_left <= 0 THEN 5 ELSE s.kind END
           FROM onceward.state_of(o.op_id, o.expires_on) AS s),
  'keyed', EXISTS (SELECT FROM onceward.key AS k WHERE k.op_id = o.op_id),
  'first', (SELECT json_build_object('kind', kind, 'note', convert_from(note, 'UTF8'))
            FROM onceward.event AS e WHERE e.op_id = o.op_id AND e.slot = 1),
  'late', (SELECT json_agg(json_build_array(slot, kind, generation, source) ORDER BY slot)
           FROM onceward.event_late AS l WHERE l.op_id = o.op_id AND l.slot > 0),
  'listed', (SELECT json_build_object('state', state, 'cause', convert_from(cause, 'UTF8'))
             FROM onceward.attention AS a WHERE a.op_id = o.op_id))
FROM onceward.op AS o WHERE o.key = convert_to('{key}', 'UTF8') ORDER BY o.op_id""")
    return [one(json.loads(row[0])) for row in found]


def one(row):
    first, late, listed = row["first"] or {}, row["late"] or [], row["listed"]
    word, cause = WORDS[row["kind"]], first.get("note")
    if word == "completed":
        assert row["keyed"] and not listed, row
    elif word == "released":
        assert not row["keyed"] and not listed, row
    elif word == "unknown":
        assert row["keyed"] and listed["state"] == 3, row
        cause = listed["cause"]
    assert not late or not first or first["kind"] == 3, f"late slots over one that decides: {row}"
    return word, cause, [tuple(slot) for slot in late]


def is_problem(response, status, code, may_have_executed):
    is_told(response, status, code, may_have_executed)
    assert response.request_id == response.json().get("logical_request_id"), response


def is_told(response, status, code, may_have_executed):
    assert (response.status, response.code) == (status, code), response
    problem = response.json()
    assert problem["type"] == f"urn:onceward:problem:{code}" and problem["status"] == status
    assert problem["retry"] == "same_key", problem
    assert problem["may_have_executed"] is may_have_executed, problem
    assert response.field("Idempotency-Verdict") == code
    assert response.field("Cache-Control") == "no-store"
    assert not response.replayed and response.field("Idempotency-Expires") is None
    assert int(response.field("Retry-After")) >= 1, response


def is_passed_on(response, status, completed):
    """The upstream's own answer, and what the gateway says beside it."""
    assert response.status == status and response.code is None, response
    assert response.request_id.startswith("req_"), response
    assert response.field("Idempotency-Verdict") is None and not response.replayed, response
    assert response.field("Idempotency-First-Seen") is None, response
    assert bool(response.field("Idempotency-Expires")) == completed, response


def is_replay(response, first):
    assert response.replayed and response.status == first.status, response
    assert response.body == first.body and response.request_id == first.request_id
    assert response.field("Idempotency-Verdict") is None, response
    for name in ("Content-Type", "Location", "ETag", "Idempotency-Expires"):
        assert response.field(name) == first.field(name), (name, response)
    assert response.field("Idempotency-First-Seen") and response.field("Cache-Control"), response


def is_held(response):
    is_problem(response, 503, "idempotency_result_unknown", True)


def is_not_kept(response, status):
    assert (response.status, response.code) == (410, "idempotency_result_not_retained"), response
    assert response.json()["original_status"] == status and response.json()["retry"] == "never"
    assert response.json()["may_have_executed"] is True


CONTRACTS = {
    "hold": {},
    "resend": {"key": {"forward": "client"}, "recovery": {"contract": "resend"}},
    "resent": {"key": {"forward": "client"}, "recovery": {"contract": "resend"}},
    "at_least_once": {"recovery": {"contract": "at_least_once"}},
    "lookup": {"recovery": {"contract": "lookup", "lookup_path": "/by-key/{key}"}},
}


def retry_gets(record, contract, done):
    """What a retry gets, by what the record says and by the contract; `done`: what a look-up finds."""
    if record == "completed":
        return "replay"
    if record == "released" or contract in ("resend", "resent"):
        return "executes"
    return "looked up" if contract == "lookup" and done else "held"


def each(plays, step):
    """Takes all of them this step further, at once."""
    for play, error in zip(plays, together([getattr(play, step) for play in plays])):
        assert not isinstance(error, Exception), f"{play}, {step}: {error!r}"


def asked_until_known(ask, seconds=15):
    """Retries, as a client does, while it is told to."""
    def again():
        response = ask()
        if response.code in ("idempotency_result_unknown", "idempotency_in_progress",
                             "ledger_unavailable"):
            time.sleep(0.1)
            return None
        return response
    return until(again, seconds, "an answer that is an end")
