SELECT onceward.purge_rows_end($1::int8)
