-- Somebody waits for these records: they are looked up soon; see the function.
SELECT onceward.lookup_poke($1::int8[])
