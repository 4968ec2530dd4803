SELECT onceward.readable(o.operation) FROM onceward.operation_of($1::text::int8, '1970-01-01'::date + $2::text::int4) AS o(operation)
