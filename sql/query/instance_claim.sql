-- A number that nobody has renewed for an hour. Whoever had it last made op_ids up to high_ms.
UPDATE onceward.instance SET token = $1::int8, gateway = $2::text, renewed_at = now()
WHERE number = (
  SELECT number FROM onceward.instance WHERE renewed_at < now() - interval '1 hour'
  ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING number, high_ms
