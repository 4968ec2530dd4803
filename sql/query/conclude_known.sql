-- What is known of a record from elsewhere than its attempts; see the function.
SELECT onceward.conclude($1::int8, $2::date, $3::uuid, $4::bytea, $5::bytea, $6::bytea, $7::int2, $8::int2, $9::int2,
                         $10::int2, $11::bytea, $12::bytea, $13::bytea, $14::bytea, $15::int8, $16::int8, $17::int8,
                         $18::int2 <> 0, false)
