UPDATE onceward.instance SET renewed_at = now(), high_ms = greatest(high_ms, $3::int8)
WHERE number = $1::int4 AND token = $2::int8
RETURNING (extract(epoch FROM clock_timestamp()) * 1000000)::int8
