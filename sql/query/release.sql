-- Attempts that provably had no effect; see the function. Sorted by op_id.
SELECT op_id, onceward.durable() FROM onceward.release($1::int8, $2::int8[], $3::date[], $4::uuid[], $5::bytea[]) AS op_id
