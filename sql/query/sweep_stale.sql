-- Attempts of one day and one stretch of op_ids that have no end. Those whose lease has run out go
-- on the attention list; of the others it is told which is the oldest, because the next sweep begins
-- there, and in how many ms the first of their leases ends, because until then it need not.
--
-- Both sides of EXCEPT are bounded by the same stretch and read in one pass each: the cost is that
-- of the stretch, whatever the statistics say. A scalar date lets the planner open one partition.
WITH unended AS MATERIALIZED (
  SELECT op_id FROM onceward.op
  WHERE expires_on = $3::date AND op_id >= $1::int8 AND op_id < $2::int8
  EXCEPT
  SELECT op_id FROM onceward.event
  WHERE expires_on = $3::date AND op_id >= $1::int8 AND op_id < $2::int8),
record AS MATERIALIZED (
  SELECT op.* FROM unended JOIN onceward.op ON op.op_id = unended.op_id
  WHERE op.expires_on = $3::date AND op.op_id >= $1::int8 AND op.op_id < $2::int8),
listed AS (
  INSERT INTO onceward.attention (created_at, op_id, expires_on, state, slot, key_hash, account, operation, key, cause)
  SELECT created_at, op_id, expires_on, 1, 0, key_hash, account, operation, key, 'lease ran out'
  FROM record WHERE lease_until < now() ORDER BY op_id
  ON CONFLICT (op_id) DO NOTHING
  RETURNING operation)
SELECT under_lease.oldest, fresh.operation, fresh.n, (extract(epoch FROM clock_timestamp()) * 1000)::int8,
       under_lease.ends_ms
FROM (SELECT min(op_id) AS oldest, (extract(epoch FROM min(lease_until) - now()) * 1000)::int8 AS ends_ms
      FROM record WHERE lease_until >= now()) AS under_lease
LEFT JOIN (SELECT operation, count(*) AS n FROM listed GROUP BY operation) AS fresh ON true
