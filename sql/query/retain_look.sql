-- What there is to purge, and what time it is for PostgreSQL; see sql/schema/0003.sql.
SELECT clock_ms, parts, rows, vacuum, erasures, due FROM onceward.retention_look($1::int8, $2::int8, $3::int8)
