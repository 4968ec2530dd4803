-- Records whose attempt ended without a known result go on the list that people and recovery read.
INSERT INTO onceward.attention AS a (created_at, op_id, expires_on, state, slot, key_hash, account, operation, key, cause)
SELECT to_timestamp(created_us / 1000000.0), op_id, day, 3, 1, key_hash, account, operation, key, cause
FROM unnest($1::int8[], $2::int8[], $3::date[], $4::uuid[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[])
  AS t(created_us, op_id, day, key_hash, account, operation, key, cause)
ON CONFLICT (op_id) DO UPDATE SET state = 3, slot = 1, cause = EXCLUDED.cause
WHERE a.slot = 0
