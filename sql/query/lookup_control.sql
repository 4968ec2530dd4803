-- A record that a lookup has to find; see the function.
SELECT op_id, day, account, key, request_id_key FROM onceward.lookup_control($1::bytea, $2::int8, $3::int8, $4::bytea)
