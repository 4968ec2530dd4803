-- Somebody waits for this record: it is looked up soon; see the function.
SELECT onceward.lookup_poke(ARRAY[$1::int8])
