-- Attempts that provably had no effect: the end is written, and the key is free again. The key goes
-- only where this statement took the slot, and only where it is still this op_id's.
WITH item AS MATERIALIZED (
  SELECT * FROM unnest($2::int8[], $3::date[], $4::uuid[], $5::bytea[]) AS t(op_id, day, key_hash, note)),
ended AS (
  INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, note)
  SELECT op_id, $1::int8, day, 1, 4, note FROM item
  ON CONFLICT (op_id, slot, expires_on) DO NOTHING
  RETURNING op_id),
freed AS (
  DELETE FROM onceward.key USING item JOIN ended ON ended.op_id = item.op_id
  WHERE key.key_hash = item.key_hash AND key.op_id = item.op_id)
SELECT op_id FROM ended
