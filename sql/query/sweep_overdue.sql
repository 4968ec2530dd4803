-- Records that are unknown for too long; see the function.
SELECT place, op_id, day, key_hash, account, key, generation, age_ms, alert, final, request_id_key
FROM onceward.overdue($1::int8, $2::bytea[], $3::int8[], $4::int2[])
