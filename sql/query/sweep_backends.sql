-- A pipeline whose client vanished before the end of its transaction survives statement_timeout and
-- idle_in_transaction_session_timeout, and what it has locked blocks the keys of others. Such backends of
-- gateways are ended. Whose backends those may be is what PostgreSQL lets us end and see.
SELECT pid, extract(epoch FROM now() - xact_start)::int4, pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'onceward' AND backend_type = 'client backend'
  AND pg_has_role(usesysid, 'USAGE') AND state = 'active' AND wait_event = 'ClientRead'
  AND xact_start < now() - interval '5 seconds' AND state_change < now() - interval '5 seconds'
  AND pid <> pg_backend_pid()
