SELECT onceward.stop_operation($1::text, $2::text::bytea, $3::text, $4::text)::text
