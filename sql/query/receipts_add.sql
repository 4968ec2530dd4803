-- Receipts that may stand under one key only; see the function. Behind the events of the same batch.
SELECT onceward.add_receipts($1::int8[], $2::bytea[], $3::bytea[], $4::bytea[], $5::int8[])
