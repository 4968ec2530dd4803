"""Who asks decides whose key it is (CONTRACT 11)."""

BEHIND = {"account": "behind"}


def test_one_key_of_two_accounts_is_two_operations(t):
    upstream, gateway = t.both(idempotency=BEHIND)
    key = t.key()
    ann = gateway.post(key, fields=[("X-Account", "ann")])
    bob = gateway.post(key, b'{"else":1}', fields=[("X-Account", "bob")])
    assert ann.status == bob.status == 201 and ann.body != bob.body
    assert gateway.post(key, fields=[("X-Account", "ann")]).body == ann.body
    assert gateway.post(key, b'{"else":1}', fields=[("X-Account", "bob")]).body == bob.body
    assert upstream.count(key) == 2


def test_no_account_is_401_and_leaves_nothing(t):
    upstream, gateway = t.both(idempotency=BEHIND)
    for fields in ([], [("X-Account", "")], [("X-Account", "a"), ("X-Account", "b")],
                   [("X-Account", "x" * 256)]):
        response = gateway.post(t.key(), fields=fields)
        assert (response.status, response.code) == (401, "account_unauthenticated"), fields
    assert not upstream.arrivals and t.records() == 0
    assert gateway.post(t.key(), fields=[("X-Account", "x" * 255)]).status == 201


def test_replays_ask_who_it_is_too(t):
    upstream, gateway = t.both(idempotency=BEHIND)
    key = t.key()
    gateway.post(key, fields=[("X-Account", "ann")])
    assert gateway.post(key).status == 401
    assert gateway.post(key, fields=[("X-Account", "bob")]).replayed is False
    assert upstream.count(key) == 2


def test_a_peer_that_is_not_trusted_cannot_say_who_it_is(t):
    upstream, gateway = t.both(idempotency=BEHIND, top={
        "accounts": {"behind": {"trusted": ["10.0.0.0/8", "::1"]}}})
    response = gateway.post(t.key(), fields=[("X-Account", "ann")])
    assert (response.status, response.code) == (401, "account_unauthenticated")
    assert not upstream.arrivals


def test_a_forged_account_is_not_forwarded_on_any_route(t):
    upstream, gateway = t.both(top={"accounts": {"behind": {"trusted": ["10.0.0.0/8"]}}})
    forged = [("X-Account", "ann"), ("X-Onceward-Anything", "1"), ("X-Mine", "2")]
    assert gateway.request("GET", "/plain/x", forged).status == 201
    assert gateway.post(t.key(), fields=forged).status == 201
    assert len(upstream.arrivals) == 2, "one that passes, one that is enforced"
    for arrival in upstream.arrivals:
        assert arrival.field("X-Account") is None
        assert arrival.field("X-Onceward-Anything") is None
        assert arrival.field("X-Mine") == "2"


def test_a_trusted_peers_account_reaches_the_upstream(t):
    upstream, gateway = t.both(idempotency=BEHIND)
    key = t.key()
    gateway.post(key, fields=[("X-Account", "ann")])
    arrival, = upstream.of(key)
    assert arrival.all("X-Account") == ["ann"]
