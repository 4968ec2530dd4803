-- Records that are due to be looked up, each under a lease; see the function.
SELECT place, op_id, day, key_hash, account, key, generation, looks, lease_left, not_found_ms, request_id_key, mark
FROM onceward.lookup_take($1::int8, $2::int4, $3::bytea[], $4::int8[], $5::int4[])
