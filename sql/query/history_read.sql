-- Of records that this gateway was told are durable: those that are not there. Days that are over may
-- have been dropped.
SELECT t.op_id, t.day, lost.op_gone
FROM unnest($1::int8[], $2::date[], $3::int2[]) AS t(op_id, day, ended)
CROSS JOIN LATERAL (
  SELECT onceward.lease_left(t.op_id, t.day) IS NULL AS op_gone,
         t.ended = 1 AND (SELECT r.kind FROM onceward.read_records(ARRAY[t.op_id], ARRAY[0::int2], t.day) AS r) IS NULL
           AS end_gone) AS lost
WHERE t.day >= (now() AT TIME ZONE 'UTC')::date AND (lost.op_gone OR lost.end_gone)
ORDER BY t.op_id
