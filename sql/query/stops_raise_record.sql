-- A record whose stored response is not what was stored. It stops nothing but its own replay.
SELECT onceward.raise_stop(convert_from($1::bytea, 'SQL_ASCII'), $2::bytea, 'replay_mismatch', $3::text, $4::text, $5::int8)
