-- An answer that an earlier process left behind, as the attempt itself would have written it. In another
-- ledger the same number may be another request's: key_hash tells, which is made under a salt of the ledger's own.
SELECT CASE WHEN EXISTS (SELECT FROM onceward.facts_of($1::int8, $2::date) AS f WHERE f.key_hash <> $3::uuid) THEN 6::int2
       ELSE onceward.conclude($1::int8, $2::date, $3::uuid, $4::bytea, $5::bytea, $6::bytea, $7::int2, 0::int2, $8::int2,
                              $9::int2, $10::bytea, $11::bytea, $12::bytea, $13::bytea, $14::int8, $15::int8, $16::int8,
                              $17::int2 = 1, $18::int2 = 1) END,
       onceward.durable()
