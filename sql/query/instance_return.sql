-- An orderly end: the number may be used again at once, above what was made of it.
UPDATE onceward.instance SET renewed_at = '-infinity', token = 0, high_ms = greatest(high_ms, $3::int8)
WHERE number = $1::int4 AND token = $2::int8
