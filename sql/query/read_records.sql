-- How these attempts ended, all of one day: a scalar date lets the planner open one partition, an
-- array of dates opens all. Where there is no event, and it is asked for, how much of the lease is
-- left, by this clock. OFFSET 0 keeps the planner from turning the look-ups into a join over the
-- whole day, which is what it takes for cheap while the day is still empty.
SELECT t.place, event.kind, event.status, event.headers, event.body, event.hash, event.writer,
       extract(epoch FROM event.at)::int8,
       CASE WHEN event.kind IS NULL AND t.look_at_lease = 1 THEN onceward.lease_left(t.op_id, $3::date) END
FROM unnest($1::int8[], $2::int2[]) WITH ORDINALITY AS t(op_id, look_at_lease, place)
LEFT JOIN LATERAL (
  SELECT kind, status, headers, body, hash, writer, at FROM onceward.event
  WHERE op_id = t.op_id AND slot = 1 AND expires_on = $3::date OFFSET 0) AS event ON true
