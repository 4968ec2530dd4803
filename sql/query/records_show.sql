SELECT $1::text, (r.day - '1970-01-01'::date)::text, r.record::text
FROM onceward.show_record($1::text::int8, '1970-01-01'::date + $2::text::int4, $3::text::uuid, $4::text::bool) AS r
