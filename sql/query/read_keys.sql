-- What stands under these keys, for those that lost. A statement of its own: its snapshot is newer
-- than the insert's, so it sees whoever won.
SELECT key_hash, op_id, (expires_at AT TIME ZONE 'UTC')::date, digest, raw_digest, rules_id, digest_key,
       expires_at <= now()
FROM onceward.key
WHERE key_hash = ANY ($1::uuid[])
