-- The keys under which there may be records; a statement of its own, to see whoever added them. Records
-- that wait for somebody stay beyond their time: of those, the oldest.
SELECT id FROM onceward.digest_key WHERE keep_until >= (now() AT TIME ZONE 'UTC')::date
UNION
SELECT k.digest_key
FROM (SELECT key_hash FROM onceward.attention ORDER BY created_at, op_id LIMIT 1000) AS a
JOIN onceward.key AS k ON k.key_hash = a.key_hash WHERE k.digest_key <> 0
ORDER BY id LIMIT 1000
