-- The ledger, version 5: asking upstreams what became of a request, and what is unknown for too long.
--
-- A lookup takes a lease on the attention row, asks outside of any transaction, and then contends for
-- the record's next slot like a late answer (onceward.conclude). Whoever crashes with a lease is
-- followed by somebody else when that has run out.
--
-- The list may have become long since it was last analysed: what takes its first few rows goes along an
-- index whatever the statistics say (enable_bitmapscan and enable_sort are off inside). A plan that has
-- to do without looks so dear that PostgreSQL would compile it, for half a second (jit is off inside).

ALTER TABLE onceward.attention
  ADD COLUMN looks     integer     NOT NULL DEFAULT 0,  -- how often it was looked up
  ADD COLUMN looked_at timestamptz;                     -- when the last lookup began
CREATE INDEX attention_due ON onceward.attention (operation, (coalesce(due_at, '-infinity'::timestamptz)));
CREATE INDEX attention_silent ON onceward.attention (operation, created_at) WHERE NOT alerted;

-- How and where the upstream can be asked for a record, as its gateway knew it; behind the 16 bytes of the
-- settings' fingerprint. Empty: it was sent under a contract without lookups.
CREATE FUNCTION onceward.lookup_mark(settings bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$ SELECT substring(settings FROM 17) $$;

-- Records of these operations that are due, each under a lease: at most so many of each, and `in_all` of
-- all, the operations in the order given. lease_left:
-- for how long, in milliseconds, an attempt may still be running; by its lease alone, because a request
-- that was cut off may go on at the upstream. not_found_ms: how long ago a lookup first found nothing.
CREATE FUNCTION onceward.lookup_take(owner bigint, in_all integer, operations bytea[], leases_ms bigint[], most integer[])
RETURNS TABLE (place integer, op_id bigint, day date, key_hash uuid, account bytea, key bytea, generation smallint,
               looks integer, lease_left bigint, not_found_ms bigint, request_id_key bytea, mark bytea)
LANGUAGE plpgsql SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  t record;
  n integer;
BEGIN
  FOR t IN SELECT u.* FROM unnest(operations, leases_ms, most) WITH ORDINALITY AS u(operation, lease_ms, most, place) LOOP
    RETURN QUERY
    WITH due AS MATERIALIZED (
      SELECT a.op_id FROM onceward.attention AS a
      WHERE a.operation = t.operation AND a.state IN (1, 3)
        AND coalesce(a.due_at, '-infinity'::timestamptz) <= now()
        AND (a.lease_until IS NULL OR a.lease_until <= now())
      ORDER BY coalesce(a.due_at, '-infinity'::timestamptz) LIMIT least(t.most, in_all) FOR UPDATE SKIP LOCKED),
    taken AS (
      UPDATE onceward.attention AS a
      SET lease_until = now() + t.lease_ms * interval '1 millisecond', owner = lookup_take.owner,
          looks = a.looks + 1, looked_at = now()
      FROM due WHERE a.op_id = due.op_id
      RETURNING a.*)
    SELECT t.place::integer - 1, taken.op_id, taken.expires_on, taken.key_hash, taken.account, taken.key, taken.generation,
           taken.looks,
           greatest(coalesce(onceward.lease_left(taken.op_id, taken.expires_on), 0),
                    coalesce((SELECT (extract(epoch FROM max(l.lease_until) - now()) * 1000)::bigint FROM onceward.event_late AS l
                              WHERE l.op_id = taken.op_id AND l.slot > 0), 0), 0::bigint),
           (extract(epoch FROM now() - taken.not_found_at) * 1000)::bigint,
           (SELECT s.value FROM onceward.secret AS s WHERE s.name = 'request_id_key'),
           (SELECT onceward.lookup_mark(o.settings) FROM onceward.op AS o
            WHERE o.op_id = taken.op_id AND o.expires_on = taken.expires_on)
    FROM taken;
    GET DIAGNOSTICS n = ROW_COUNT;
    in_all := in_all - n;
    EXIT WHEN in_all <= 0;
  END LOOP;
END $$;

-- A lease is given back, where it still is this owner's. not_found: 1 it found nothing, and that
-- counts; 0 it says nothing; -1 what was not found before does not count any more.
CREATE FUNCTION onceward.lookup_return(owner bigint, op_id bigint, due_ms bigint, not_found smallint)
RETURNS void LANGUAGE plpgsql SET jit = off SET enable_seqscan = off AS $$
BEGIN
  UPDATE onceward.attention AS a
  SET lease_until = NULL, owner = NULL, due_at = now() + due_ms * interval '1 millisecond',
      not_found_at = CASE lookup_return.not_found WHEN 1 THEN coalesce(a.not_found_at, now())
                                                  WHEN 0 THEN a.not_found_at END
  WHERE a.op_id = lookup_return.op_id AND a.owner = lookup_return.owner;
END $$;

-- Somebody waits for these: they are due now, but no more often than once a second.
CREATE FUNCTION onceward.lookup_poke(op_ids bigint[])
RETURNS void LANGUAGE plpgsql SET jit = off SET enable_seqscan = off AS $$
BEGIN
  UPDATE onceward.attention AS a
  SET due_at = greatest(now(), coalesce(a.looked_at + interval '1 second', now()))
  FROM (SELECT p.op_id FROM onceward.attention AS p
        WHERE p.op_id = ANY (op_ids)
          AND p.due_at > greatest(now(), coalesce(p.looked_at + interval '1 second', now()))
        ORDER BY p.op_id FOR UPDATE SKIP LOCKED) AS early
  WHERE a.op_id = early.op_id;
END $$;

-- A record of this operation that is known to have had its effect, answered by the upstream itself with
-- a 2xx and not in this moment, not erased since (those have no hash), and sent to be asked for in the same
-- way: what a lookup has to find before a "not found" counts. op is only
-- ever appended to, so the newest rows of a day are in its last pages; at most 16 MiB are read.
CREATE FUNCTION onceward.lookup_control(operation bytea, retention_ms bigint, age_ms bigint, mark bytea)
RETURNS TABLE (op_id bigint, day date, account bytea, key bytea, request_id_key bytea)
LANGUAGE plpgsql STABLE SET jit = off SET enable_seqscan = off AS $$
DECLARE
  newest date := ((now() + retention_ms * interval '1 millisecond') AT TIME ZONE 'UTC')::date;
  part   regclass;
  pages  bigint;
BEGIN
  FOR back IN 0..1 LOOP
    part := to_regclass('onceward.op_' || to_char(newest - back, 'YYYYMMDD'));
    pages := coalesce(pg_relation_size(part), 0) / current_setting('block_size')::bigint;
    FOR step IN 1..3 LOOP
      EXIT WHEN pages = 0 OR (step > 1 AND pages <= (ARRAY[32, 256])[step - 1]);
      RETURN QUERY
      SELECT c.op_id, newest - back, c.account, c.key,
             (SELECT s.value FROM onceward.secret AS s WHERE s.name = 'request_id_key')
      FROM (SELECT op.op_id, op.account, op.key FROM onceward.op AS op
            WHERE op.expires_on = newest - back AND op.operation = lookup_control.operation
              AND op.ctid >= ('(' || greatest(pages - (ARRAY[32, 256, 2048])[step], 0) || ',0)')::tid
              AND op.created_at < now() - age_ms * interval '1 millisecond'
              AND onceward.lookup_mark(op.settings) = lookup_control.mark
            ORDER BY op.op_id DESC LIMIT 1000) AS c
      WHERE EXISTS (SELECT FROM onceward.event AS e
                    WHERE e.op_id = c.op_id AND e.slot = 1 AND e.expires_on = newest - back
                      AND e.kind = 2 AND e.status BETWEEN 200 AND 299 AND e.hash IS NOT NULL
                      AND e.at < now() - age_ms * interval '1 millisecond' OFFSET 0)
      ORDER BY c.op_id DESC LIMIT 1;
      IF FOUND THEN
        RETURN;
      END IF;
    END LOOP;
  END LOOP;
END $$;

-- Records that are unknown for longer than their operation allows, at most 100 of each. alert: nobody
-- was told before, and now it is told. final: the caller has the lease, and completes them.
CREATE FUNCTION onceward.overdue(owner bigint, operations bytea[], deadlines_ms bigint[], finals smallint[])
RETURNS TABLE (place integer, op_id bigint, day date, key_hash uuid, account bytea, key bytea, generation smallint,
               age_ms bigint, alert boolean, final boolean, request_id_key bytea)
LANGUAGE plpgsql SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  t record;
BEGIN
  FOR t IN SELECT u.* FROM unnest(operations, deadlines_ms, finals) WITH ORDINALITY AS u(operation, deadline_ms, final, place) LOOP
    RETURN QUERY
    WITH silent AS MATERIALIZED (
      SELECT a.op_id, true AS alert FROM onceward.attention AS a
      WHERE t.final = 0 AND a.operation = t.operation AND NOT a.alerted AND a.state IN (1, 3)
        AND a.created_at < now() - t.deadline_ms * interval '1 millisecond'
      ORDER BY a.created_at LIMIT 100 FOR UPDATE SKIP LOCKED),
    ending AS MATERIALIZED (
      SELECT a.op_id, NOT a.alerted AS alert FROM onceward.attention AS a
      WHERE t.final = 1 AND a.operation = t.operation AND a.state IN (1, 3)
        AND a.created_at < now() - t.deadline_ms * interval '1 millisecond'
        AND (a.lease_until IS NULL OR a.lease_until <= now())
      ORDER BY a.created_at LIMIT 100 FOR UPDATE SKIP LOCKED),
    late AS (SELECT * FROM silent UNION ALL SELECT * FROM ending),
    taken AS (
      UPDATE onceward.attention AS a
      SET alerted = true,
          lease_until = CASE t.final WHEN 1 THEN now() + interval '30 seconds' ELSE a.lease_until END,
          owner = CASE t.final WHEN 1 THEN overdue.owner ELSE a.owner END
      FROM late WHERE a.op_id = late.op_id
      RETURNING a.*, late.alert)
    SELECT t.place::integer - 1, taken.op_id, taken.expires_on, taken.key_hash, taken.account, taken.key, taken.generation,
           (extract(epoch FROM now() - taken.created_at) * 1000)::bigint, taken.alert, t.final = 1,
           (SELECT s.value FROM onceward.secret AS s WHERE s.name = 'request_id_key')
    FROM taken;
  END LOOP;
END $$;

-- Stops these operations where a record has become overdue since they were last stopped for that: who
-- resumes one is not stopped again for what was there. Which ones were stopped now.
CREATE FUNCTION onceward.stop_overdue(operations bytea[], deadlines_ms bigint[], raised_by text)
RETURNS SETOF integer LANGUAGE plpgsql SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  t record;
  since timestamptz;
BEGIN
  FOR t IN SELECT u.*, convert_from(u.operation, 'SQL_ASCII') AS name
           FROM unnest(operations, deadlines_ms) WITH ORDINALITY AS u(operation, deadline_ms, place) LOOP
    SELECT a.created_at + t.deadline_ms * interval '1 millisecond' INTO since FROM onceward.attention AS a
    WHERE a.operation = t.operation AND a.state IN (1, 3)
      AND a.created_at < now() - t.deadline_ms * interval '1 millisecond'
    ORDER BY a.created_at DESC LIMIT 1;
    CONTINUE WHEN NOT FOUND OR EXISTS (
      SELECT FROM onceward.stop AS s
      WHERE s.operation = t.name AND s.account IS NULL AND s.reason = 'unknown_age'
        AND (s.ended_at IS NULL OR s.raised_at >= since));
    PERFORM onceward.raise_stop(t.name, NULL, 'unknown_age',
      'a result is unknown for over ' || t.deadline_ms / 1000 || ' s', stop_overdue.raised_by);
    RETURN NEXT t.place::integer - 1;
  END LOOP;
END $$;

-- Of records that a gateway was told are durable: those that are not there. One whose end was confirmed has
-- an event; another one has its key, or an end. Looked up by primary keys alone: `op` has none, and its
-- newest pages are read whole. Days that are over may have been dropped.
CREATE FUNCTION onceward.history_missing(op_ids bigint[], days date[], hashes uuid[], ended smallint[])
RETURNS TABLE (op_id bigint, day date, reserved boolean) LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
  t record;
BEGIN
  FOR t IN SELECT u.* FROM unnest(op_ids, days, hashes, ended) AS u(op_id, day, key_hash, ended)
           WHERE u.day >= (now() AT TIME ZONE 'UTC')::date ORDER BY u.op_id LOOP
    CONTINUE WHEN EXISTS (SELECT FROM onceward.event AS e WHERE e.op_id = t.op_id AND e.slot = 1 AND e.expires_on = t.day);
    CONTINUE WHEN EXISTS (SELECT FROM onceward.event_late AS l WHERE l.op_id = t.op_id AND l.slot > 0);
    CONTINUE WHEN t.ended = 0 AND EXISTS (SELECT FROM onceward.key AS k WHERE k.key_hash = t.key_hash AND k.op_id = t.op_id);
    op_id := t.op_id; day := t.day; reserved := t.ended = 0;
    RETURN NEXT;
  END LOOP;
END $$;

-- A plan that cannot do without what enable_seqscan forbids has a cost that makes PostgreSQL compile it,
-- which takes longer than it runs. So nothing that goes along indexes by force is compiled.
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN SELECT oid::regprocedure FROM pg_proc
           WHERE pronamespace = 'onceward'::regnamespace AND 'enable_seqscan=off' = ANY (proconfig) LOOP
    EXECUTE format('ALTER FUNCTION %s SET jit = off', f);
  END LOOP;
END $$;


INSERT INTO onceward.schema_version (version, oldest_program) VALUES (5, 2);
