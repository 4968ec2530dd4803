-- What the ledger holds of these operations; a statement of its own, to see whoever added them.
SELECT operation, identity FROM onceward.identity WHERE operation = ANY ($1::text[])
