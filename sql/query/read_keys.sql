-- What stands under these keys, for those that lost. A statement of its own: its snapshot is newer
-- than the insert's, so it sees whoever won.
SELECT key_hash, op_id, day, digest, raw_digest, rules_id, digest_key, expired, expires
FROM onceward.read_keys($1::uuid[])
