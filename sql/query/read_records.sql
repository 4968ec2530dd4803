-- How these attempts ended, all of one day, with their place in the array; see the function.
SELECT place, kind, status, headers, body, hash, writer, at, lease_left, left_out,
  slot, source, generation, tried_ms, expires, expired
FROM onceward.read_records($1::int8[], $2::int2[], $3::date)
