-- Asked once a connection: is this a ledger that we may use, and what clock does it go by?
SELECT (SELECT max(version) FROM onceward.schema_version),
       (SELECT oldest_program FROM onceward.schema_version ORDER BY version DESC LIMIT 1),
       pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
       onceward.durable(),
       (SELECT value FROM onceward.secret WHERE name = 'key_salt'),
       (SELECT value FROM onceward.secret WHERE name = 'request_id_key'),
       (extract(epoch FROM clock_timestamp()) * 1000000)::int8
