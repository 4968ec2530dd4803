-- A commit that writes WAL. What was learnt by re-reading after a lost reply counts only behind
-- one: a row that can be seen may still be missing on a standby (a cancelled wait).
SELECT onceward.durable(), pg_logical_emit_message(true, 'onceward', '')
