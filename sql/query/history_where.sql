-- Which history of which cluster this server goes on writing: a restore or a promotion tells by another
-- system identifier or timeline. A transaction of its own: not every role may ask everywhere.
SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int4
FROM pg_control_system()
