-- The lease of a lookup is given back, whatever came of it; see the function.
SELECT onceward.lookup_return($1::int8, $2::int8, $3::int8, $4::int2)
