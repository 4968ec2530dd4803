-- Reserve a batch of keys. The arrays arrive sorted by key_hash: two batches that share keys
-- take them in the same order and cannot deadlock.
--
-- "Won" means that *this op_id* comes back. Of two equal keys in one batch only the first is
-- inserted; the second, like every key that was there before, does not come back, and is read by
-- read_keys in a new snapshot.
WITH item AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::int8[], $3::bytea[], $4::bytea[], $5::int8[], $6::int4[],
                       $7::int8[], $8::int8[], $9::int8[], $10::bytea[], $11::bytea[], $12::bytea[], $13::bytea[])
    AS t(key_hash, op_id, digest, raw_digest, rules_id, digest_key,
         retention_ms, tombstone_ms, lease_ms, account, operation, key, lookup_mark)),
won AS (
  INSERT INTO onceward.key (key_hash, op_id, expires_at, keep_until, digest, raw_digest, rules_id, digest_key)
  SELECT key_hash, op_id, now() + retention_ms * interval '1 millisecond',
         now() + tombstone_ms * interval '1 millisecond', digest, raw_digest, rules_id, digest_key
  FROM item
  ON CONFLICT (key_hash) DO NOTHING
  RETURNING op_id, expires_at, (expires_at AT TIME ZONE 'UTC')::date AS day),
facts AS (
  INSERT INTO onceward.op (op_id, expires_on, key_hash, created_at, lease_until, account, operation, key, gateway, settings)
  SELECT item.op_id, won.day, item.key_hash, now(), now() + item.lease_ms * interval '1 millisecond',
         item.account, item.operation, item.key, $14::bytea, $15::bytea || coalesce(item.lookup_mark, '')
  FROM item JOIN won ON won.op_id = item.op_id)
SELECT op_id, day, extract(epoch FROM expires_at)::int8,
       (SELECT onceward.durable())
FROM won
