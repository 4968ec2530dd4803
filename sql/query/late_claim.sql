-- The right to send a request once more; see the function.
SELECT onceward.claim($1::int8, $2::date, $3::int2, $4::int8, $5::int8, $6::uuid, $7::bytea, $8::bytea, $9::bytea)
