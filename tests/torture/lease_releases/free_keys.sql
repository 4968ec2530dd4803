-- BROKEN on purpose: the key is free, whether the end of its attempt is written or not.
DELETE FROM onceward.key AS k USING unnest($1::uuid[], $2::int8[], $3::date[]) AS t(key_hash, op_id, day)
WHERE k.key_hash = t.key_hash AND k.op_id = t.op_id
