SELECT op_id::text, (day - '1970-01-01'::date)::text, verdict
FROM onceward.reconcile_absent($1::text::bool, $2::text::timestamptz, $3::text, $4::text, $5::text::int8, $6::text::int8[],
  ARRAY(SELECT '1970-01-01'::date + d.day FROM unnest($7::text::int4[]) WITH ORDINALITY AS d(day, place) ORDER BY d.place))
