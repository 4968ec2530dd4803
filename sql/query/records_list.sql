-- What people ask goes out and comes back as text alone: commands and the admin listener send the same.
SELECT op_id::text, (day - '1970-01-01'::date)::text, record::text, next_us::text, next_id::text
FROM onceward.list_records($1::text, $2::text::bytea, $3::text::bytea, $4::text::int8, $5::text::int4, $6::text::int8,
                           $7::text::int8, $8::text::bool)
