-- An end that is not the ordinary one of a first attempt; see the function.
SELECT result, onceward.late_expires($1::int8) FROM onceward.conclude($1::int8, $2::date, $3::uuid, $4::bytea, $5::bytea, $6::bytea, $7::int2, 0::int2, $8::int2,
  $9::int2, $10::bytea, $11::bytea, $12::bytea, $13::bytea, $14::int8, $15::int8, $16::int8, $17::int2 = 1, $18::int2 = 1) AS result
