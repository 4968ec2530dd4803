SELECT ($1::text::timestamptz <= now())::text
