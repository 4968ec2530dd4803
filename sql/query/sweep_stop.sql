-- Operations that stop because of records that are unknown for too long; see the function.
SELECT place FROM onceward.stop_overdue($1::bytea[], $2::int8[], $3::text) AS place
