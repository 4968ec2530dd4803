-- PostgreSQL's clock, and the days for which both op and event have a partition.
SELECT (now() AT TIME ZONE 'UTC')::date, (extract(epoch FROM clock_timestamp()) * 1000)::int8, made.day
FROM (SELECT 1) AS one
LEFT JOIN LATERAL (
  SELECT to_date(substr(op.relname::text, 4), 'YYYYMMDD') AS day
  FROM pg_inherits AS op_part
  JOIN pg_class AS op ON op.oid = op_part.inhrelid
  JOIN pg_class AS event ON event.relnamespace = op.relnamespace
       AND event.relname = ('event_' || substr(op.relname::text, 4))::name
  JOIN pg_inherits AS event_part ON event_part.inhrelid = event.oid
  WHERE op_part.inhparent = 'onceward.op'::regclass AND NOT op_part.inhdetachpending
    AND event_part.inhparent = 'onceward.event'::regclass AND NOT event_part.inhdetachpending
    AND op.relname::text ~ '^op_[0-9]{8}$') AS made ON true
ORDER BY made.day
