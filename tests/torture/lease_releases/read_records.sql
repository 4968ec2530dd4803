-- BROKEN on purpose (make BROKEN=lease_releases): a lease that ran out counts as released. Many
-- programs do that, and execute twice.
SELECT place, CASE WHEN kind IS NULL AND lease_left <= 0 THEN 4 ELSE kind END::int2, status, headers, body, hash,
  writer, at, lease_left, left_out, slot, source, generation, tried_ms, expires, expired
FROM onceward.read_records($1::int8[], $2::int2[], $3::date)
