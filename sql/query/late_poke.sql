-- Somebody asks for this record: the look-up is due now.
UPDATE onceward.attention SET due_at = now() WHERE op_id = $1::int8 AND (due_at IS NULL OR due_at > now())
