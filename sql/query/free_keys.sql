-- Keys that stand though their attempt was released; see the function. Sorted by key_hash.
SELECT onceward.free_keys($1::uuid[], $2::int8[], $3::date[])
