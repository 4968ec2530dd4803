-- Resends whose lease ran out are unknown again; see the function.
SELECT operation, n FROM onceward.sweep_claims($1::int8)
