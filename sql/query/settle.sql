-- How first attempts ended: completed or unknown. Sorted by op_id. Whoever's id does not come back
-- lost the slot: the row that stands there is read, and its writer compared.
INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, status, headers, body, hash, receipt, note)
SELECT op_id, $1::int8, day, 1, kind, status, headers, body, hash, receipt, note
FROM unnest($2::int8[], $3::date[], $4::int2[], $5::int2[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[])
  AS t(op_id, day, kind, status, headers, body, hash, receipt, note)
ON CONFLICT (op_id, slot, expires_on) DO NOTHING
RETURNING op_id,
  onceward.durable()
