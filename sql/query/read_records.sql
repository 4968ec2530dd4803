-- How these attempts ended, all of one day: a scalar date lets the planner open one partition, an
-- array of dates opens all. Where there is no event yet, whether the lease is over, by this clock.
SELECT t.place, event.kind, event.status, event.headers, event.body, event.hash, event.writer,
       extract(epoch FROM event.at)::int8, lease.ended
FROM unnest($1::int8[]) WITH ORDINALITY AS t(op_id, place)
LEFT JOIN LATERAL (
  SELECT kind, status, headers, body, hash, writer, at FROM onceward.event
  WHERE op_id = t.op_id AND slot = 1 AND expires_on = $2::date) AS event ON true
LEFT JOIN LATERAL (
  SELECT lease_until < now() AS ended FROM onceward.op
  WHERE op_id = t.op_id AND expires_on = $2::date AND event.kind IS NULL LIMIT 1) AS lease ON true
