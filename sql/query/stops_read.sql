-- What is stopped now. One more than is told apart: whoever reads that many stops everything.
SELECT id, operation, account, reason FROM onceward.stop
WHERE ended_at IS NULL AND op_id IS NULL ORDER BY id LIMIT 10001
