-- The keys under which there may be records; a statement of its own, to see whoever added them.
SELECT DISTINCT id FROM onceward.digest_key
WHERE keep_until >= (now() AT TIME ZONE 'UTC')::date ORDER BY id LIMIT 1000
