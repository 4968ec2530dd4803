"""An operation whose records wait for somebody cannot be taken out of the settings (CONTRACT 14)."""
from harness import Later, answer, lasting, own_postgres, unhurried, until


def without_orders(gateway):
    """The settings without the operation orders.create."""
    routes = [r for r in gateway.settings["routes"]
              if r.get("idempotency", {}).get("operation") != "orders.create"]
    return dict(gateway.settings, routes=routes)


def reload(gateway, settings=None):
    """Asks for a reload, and waits until it is decided. True: it is in effect."""
    def decided():
        log = gateway.log()
        return log.count("the reload changed nothing"), log.count("are in effect")
    refused, taken = decided()
    gateway.write(settings)
    gateway.hup()
    until(lambda: decided() != (refused, taken), 15, "the reload being decided")
    return decided()[1] > taken


def must_be_refused(gateway, sentence):
    failures = gateway.metric("config_reload_failures_total")
    assert not reload(gateway, without_orders(gateway))
    assert sentence in gateway.log(), gateway.log()[-1000:]
    until(lambda: gateway.metric("config_reload_failures_total") == failures + 1, 5, "the count")


def test_an_operation_with_an_unknown_record_cannot_be_removed_by_a_reload(t):
    upstream, gateway = t.both()
    key = t.key()
    upstream.on(key, answer(500))
    assert gateway.post(key).status == 500
    until(lambda: t.rows("SELECT 1 FROM onceward.attention"), 5, "the record being listed")
    must_be_refused(gateway, "`orders.create` is gone from the settings")
    assert "whose result is unknown" in gateway.log()
    assert gateway.post(key).code == "idempotency_result_unknown", "it is still answered for"
    assert gateway.post(t.key()).status == 201
    gateway.settings["strict_keys"] = True  # whatever keeps the operation is no matter
    assert reload(gateway)
    # As if somebody had resolved it.
    t.rows("DELETE FROM onceward.attention; UPDATE onceward.event SET kind = 4")
    assert reload(gateway, without_orders(gateway))
    until(lambda: gateway.post(key).status == 405, 5, "the route being gone")


def test_an_operation_with_a_request_in_flight_cannot_be_removed_by_a_reload(t):
    upstream, gateway = t.both(**unhurried())
    key = t.key()
    gateway.post(t.key())
    gate = upstream.gate(key)
    under_way = Later(lambda: gateway.post(key))
    gate.arrived()
    must_be_refused(gateway, "requests of it are in flight")
    gate.open()
    assert under_way.result().status == 201 and gateway.post(key).replayed
    assert reload(gateway, without_orders(gateway)), "all have ended"
    until(lambda: gateway.post(key).status == 405, 5, "the route being gone")
    assert reload(gateway), "and it may come back"
    until(lambda: gateway.post(key).replayed, 5, "the stored answer")
    assert upstream.count(key) == 1


def test_records_of_other_operations_do_not_hold_up_a_removal(t):
    upstream, gateway = t.both(**unhurried())
    key = t.key()
    upstream.on(key, answer(500))
    gateway.request("PATCH", "/v1/orders/7", [("Idempotency-Key", key)], b"{}")
    until(lambda: t.rows("SELECT 1 FROM onceward.attention"), 5, "the record being listed")
    gate = upstream.gate("/v1/orders/8")
    under_way = Later(lambda: gateway.request("PATCH", "/v1/orders/8",
                                              [("Idempotency-Key", t.key())], b"{}"))
    gate.arrived()
    assert reload(gateway, without_orders(gateway))
    gate.open()
    assert under_way.result().status == 201


def test_a_record_that_another_gateway_left_behind_counts(t):
    lease = {"lease": lasting(8)}
    upstream, gateway = t.both(idempotency=lease)
    other = t.gateway(upstream, idempotency=lease)
    key = t.key()
    gate = upstream.gate(key)
    Later(lambda: other.post(key))
    gate.arrived()
    other.kill()
    must_be_refused(gateway, "requests of it are in flight")
    gateway.unknown_after_lease(key, 16)
    until(lambda: t.rows("SELECT 1 FROM onceward.attention"), 10, "the record being listed")
    must_be_refused(gateway, "whose result is unknown")
    gate.open()


@own_postgres
def test_a_removal_is_refused_where_the_ledger_cannot_be_asked(t):
    _, gateway = t.both()
    gateway.post(t.key())
    t.postgres.stop()
    must_be_refused(gateway, "the ledger cannot be asked")
    gateway.settings["strict_keys"] = True
    assert reload(gateway), "what removes nothing does not ask"
    t.postgres.start()
    gateway.wait_ready()
    assert reload(gateway, without_orders(gateway))


def test_a_ledger_that_does_not_tell_in_time_refuses_a_removal(t):
    _, gateway = t.both()
    gateway.post(t.key())
    lock = t.lock("op")
    must_be_refused(gateway, "PostgreSQL did not answer within 5 s")
    lock.close()
    assert reload(gateway, without_orders(gateway))
