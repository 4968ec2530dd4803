-- Attempts that provably had no effect; see the function. Sorted by op_id.
SELECT * FROM onceward.release($1::int8, $2::int8[], $3::date[], $4::uuid[], $5::bytea[])
