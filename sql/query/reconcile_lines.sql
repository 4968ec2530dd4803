SELECT place::text, op_id::text, (day - '1970-01-01'::date)::text, verdict
FROM onceward.reconcile_lines($1::text::bytea, $2::text::bool, $3::text, $4::text, $5::text::int8, $6::text::int8[],
  ARRAY(SELECT '1970-01-01'::date + d.day FROM unnest($7::text::int4[]) WITH ORDINALITY AS d(day, place) ORDER BY d.place),
  $8::text::uuid[], $9::text::int2[], $10::text::bytea[], $11::text::bytea[], $12::text::bytea[], $13::text::bool)
