SELECT f.op_id::text, (f.day - '1970-01-01'::date)::text, r.record::text
FROM onceward.find_record($1::text::uuid) AS f
CROSS JOIN LATERAL onceward.show_record(f.op_id, f.day, $1::text::uuid, $2::text::bool) AS r
