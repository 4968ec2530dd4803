SELECT onceward.end_stops($1::text, $2::text::bytea, $3::text, $4::text)::text
