-- One step of the walk over keys (0), event_late (1) or receipts (2).
SELECT mine, purged, next_block FROM onceward.purge_rows($1::int8, $2::int2, $3::int8, $4::int8)
