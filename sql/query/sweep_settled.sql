-- A settle may commit between a sweep's look and its insert: such a record leaves the list again.
DELETE FROM onceward.attention AS a USING onceward.event
WHERE a.op_id >= $1::int8 AND a.op_id < $2::int8 AND a.expires_on = $3::date AND a.slot = 0
  AND event.op_id = a.op_id AND event.slot = 1 AND event.expires_on = $3::date AND event.kind IN (2, 4)
