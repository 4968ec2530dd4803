-- Of records that this gateway was told are durable: those that are not there; see the function.
SELECT op_id, day, reserved FROM onceward.history_missing($1::int8[], $2::date[], $3::uuid[], $4::int2[])
