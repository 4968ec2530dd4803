-- One step of the erasures under way.
SELECT more, erased FROM onceward.erase_next($1::int8, $2::int8)
