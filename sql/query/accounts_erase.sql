SELECT erased::text, waiting::text FROM onceward.erase($1::text::bytea, $2::text, $3::text, $4::text::bool)
