SELECT onceward.resolve_record($1::text::int8, '1970-01-01'::date + $2::text::int4, $3::text::int2, $4::text::int2, $5::text::int2,
  $6::text::bytea, $7::text::bytea, $8::text::bytea, $9::text, $10::text, $11::text::int2, $12::text::int8, $13::text::bool, $14::text::int2)::text
