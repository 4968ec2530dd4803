-- Operations that the ledger has not met; sorted by name.
INSERT INTO onceward.identity (operation, identity, text)
SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[])
ON CONFLICT (operation) DO NOTHING
