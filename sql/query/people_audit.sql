SELECT onceward.audit_add($1::text, $2::text, $3::text, $4::text, $5::text)::text
