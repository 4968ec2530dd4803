-- Retention (version 3): what goes, when, and in which order, so that at no moment a record that had
-- its effect looks like one that had not.
--
--   a day    every record gets an end in slot 1 and, where that is unknown, its place on the attention
--            list; then op goes, then event. While event stands it says how each record ended; when both
--            are gone, the key and the attention list do.
--   a key    goes behind its tombstone, never while the record is under way, on the attention list, or
--            in a slot of event_late that is kept longer.
--   erasure  what an account sent and got goes at once; hashes and digests stay as long as the key does.
--
-- Each step is one short transaction. Who drops parts, and who walks, holds a lease here: two that
-- do the same would be safe, but would do it twice.

CREATE TABLE onceward.retention (
  task         text        PRIMARY KEY,
  owner        bigint      NOT NULL DEFAULT 0,
  leased_until timestamptz NOT NULL DEFAULT '-infinity',
  done_at      timestamptz NOT NULL DEFAULT '-infinity',
  -- parts: what is on its way out, and how far its records have been looked at
  going        date,
  parents      text[],                   -- {op,event} in this order, or {audit}
  block        bigint      NOT NULL DEFAULT 0,
  records      bigint      NOT NULL DEFAULT 0,
  listed       bigint      NOT NULL DEFAULT 0,
  closed       boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50);
INSERT INTO onceward.retention (task) VALUES ('parts'), ('rows'), ('vacuum'), ('erase');

-- Is the task this owner's, for so long from now on?
CREATE FUNCTION onceward.retention_take(task text, token bigint, lease_ms bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE onceward.retention AS r
  SET owner = token, leased_until = clock_timestamp() + lease_ms * interval '1 millisecond'
  WHERE r.task = retention_take.task AND (r.owner = token OR r.leased_until < clock_timestamp());
  RETURN FOUND;
END $$;

CREATE FUNCTION onceward.retention_leave(task text, token bigint, done boolean) RETURNS void
LANGUAGE sql AS $$
  UPDATE onceward.retention AS r
  SET owner = 0, leased_until = '-infinity', done_at = CASE WHEN done THEN now() ELSE r.done_at END
  WHERE r.task = retention_leave.task AND r.owner = retention_leave.token
$$;

-- Partitions, and tables that have been: op and event by day, audit by month. `over_at`: nothing in it
-- is wanted from then on, but for audit_retention.
CREATE VIEW onceward.part AS
SELECT c.oid, split_part(c.relname::text, '_', 1) AS parent, c.relname::text AS name, d.day,
       (CASE WHEN c.relname::text LIKE 'audit%' THEN d.day + interval '1 month' ELSE d.day + interval '1 day' END)
         AT TIME ZONE 'UTC' AS over_at,
       i.inhrelid IS NOT NULL AS attached, coalesce(i.inhdetachpending, false) AS leaving
FROM pg_class AS c
CROSS JOIN LATERAL (SELECT to_date(rpad(split_part(c.relname::text, '_', 2), 8, '01'), 'YYYYMMDD') AS day) AS d
LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'onceward'::regnamespace AND c.relkind = 'r'
  AND c.relname::text ~ '^((op|event)_[0-9]{8}|audit_[0-9]{6})$';

-- The first day whose responses may still be there.
CREATE FUNCTION onceward.first_day() RETURNS date LANGUAGE sql STABLE AS $$
  SELECT coalesce(min(day), '-infinity') FROM onceward.part WHERE parent = 'event' AND attached
$$;

CREATE FUNCTION onceward.place(block bigint) RETURNS tid LANGUAGE sql IMMUTABLE AS $$
  SELECT ('(' || least(block, 4294967294) || ',0)')::tid
$$;

CREATE FUNCTION onceward.blocks(relation regclass) RETURNS bigint LANGUAGE sql AS $$
  SELECT pg_relation_size(relation) / current_setting('block_size')::bigint
$$;

-- For an unknown record the tombstone counts from its resolution. Where that came as the first attempt's
-- own end, behind its lease, no row of event_late says how long the key is needed.
CREATE FUNCTION onceward.keep_late_keys(day date, from_block bigint, n_blocks bigint) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  WITH late AS MATERIALIZED (
    SELECT o.op_id, o.key_hash, e.at - o.created_at AS took
    FROM (SELECT * FROM onceward.op AS op
          WHERE op.expires_on = keep_late_keys.day AND op.ctid >= onceward.place(from_block)
            AND op.ctid < onceward.place(from_block + n_blocks) OFFSET 0) AS o
    CROSS JOIN LATERAL (
      SELECT event.at FROM onceward.event
      WHERE event.op_id = o.op_id AND event.slot = 1 AND event.expires_on = keep_late_keys.day
        AND event.kind = 2 AND event.at > o.lease_until OFFSET 0) AS e),
  kept AS MATERIALIZED (
    SELECT k.ctid AS place, k.key_hash, late.took FROM late
    JOIN onceward.key AS k ON k.key_hash = late.key_hash AND k.op_id = late.op_id
    ORDER BY k.key_hash FOR UPDATE OF k)
  UPDATE onceward.key AS k SET keep_until = k.keep_until + kept.took FROM kept WHERE k.key_hash = kept.key_hash;
END $$;

-- The last sweep over a stretch of a day that goes. What has no end by now is unknown: that is written
-- into slot 1, so that whoever comes late finds it taken and goes on in event_late, and on the list,
-- which outlives the day. `held`: a lease that still holds; the day has to wait. When a record ended is
-- known no longer than its day stands: a tombstone that counts from an end behind the lease moves here.
CREATE FUNCTION onceward.close_day(day date, from_block bigint, n_blocks bigint, OUT records bigint, OUT listed bigint, OUT held boolean)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  open onceward.op[];
BEGIN
  SELECT count(*), array_agg(o.op ORDER BY o.op_id) FILTER (WHERE NOT EXISTS (
           SELECT FROM onceward.event AS e WHERE e.op_id = o.op_id AND e.slot = 1 AND e.expires_on = close_day.day OFFSET 0))
  INTO records, open
  FROM (SELECT op, op.op_id FROM onceward.op AS op
        WHERE op.expires_on = close_day.day AND op.ctid >= onceward.place(from_block)
          AND op.ctid < onceward.place(from_block + n_blocks) OFFSET 0) AS o;
  listed := 0;
  held := EXISTS (SELECT FROM unnest(open) AS o WHERE o.lease_until >= now());
  IF held THEN
    RETURN;
  END IF;
  IF open IS NOT NULL THEN
    INSERT INTO onceward.attention AS a (created_at, op_id, expires_on, state, slot, key_hash, account, operation, key, cause)
    SELECT o.created_at, o.op_id, o.expires_on, 3, 1, o.key_hash, o.account, o.operation, o.key, 'its day has ended'
    FROM unnest(open) AS o ORDER BY o.op_id
    ON CONFLICT (op_id) DO UPDATE SET state = 3, slot = 1 WHERE a.slot = 0;
    INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, note)
    SELECT o.op_id, 0, o.expires_on, 1, 3, 'its day has ended' FROM unnest(open) AS o ORDER BY o.op_id
    ON CONFLICT (op_id, slot, expires_on) DO NOTHING;
    GET DIAGNOSTICS listed = ROW_COUNT;
    -- A settle that came between the look and the insert has won.
    DELETE FROM onceward.attention AS a USING unnest(open) AS o
    WHERE a.op_id = o.op_id AND a.slot = 1 AND EXISTS (
      SELECT FROM onceward.event AS e
      WHERE e.op_id = o.op_id AND e.slot = 1 AND e.expires_on = close_day.day AND e.kind IN (2, 4));
  END IF;
  PERFORM onceward.keep_late_keys(day, from_block, n_blocks);
END $$;

-- The oldest of what is over: days that ended `grace_ms` ago, months of the audit table.
CREATE FUNCTION onceward.parts_over(grace_ms bigint, audit_ms bigint)
RETURNS TABLE (day date, parents text[], empty boolean, bytes bigint, about_rows bigint)
LANGUAGE sql STABLE AS $$
  SELECT p.day, CASE WHEN p.parent = 'audit' THEN ARRAY['audit'] ELSE ARRAY['op', 'event'] END,
         sum(pg_relation_size(p.oid)) = 0, sum(pg_total_relation_size(p.oid))::bigint,
         coalesce(sum(greatest(c.reltuples, 0)) FILTER (WHERE p.parent <> 'event'), 0)::bigint
  FROM onceward.part AS p JOIN pg_class AS c ON c.oid = p.oid
  WHERE p.attached
    AND p.over_at < now() - CASE WHEN p.parent = 'audit' THEN audit_ms ELSE grace_ms END * interval '1 millisecond'
  GROUP BY 1, 2 ORDER BY 2 DESC, 1
$$;

-- One step of taking away what is over. `doing`:
--   0 nothing (more) to do   1 goes on: call again
--   2 `name` is to be detached from `parent`, concurrently: outside of any transaction. Then call again
--   3 gone is what `name` says     4 somebody else is at it
--   5 a record of it is still under way, or the place is busy: later
-- By itself (`one_a_day`) only one day a day that holds records; empty ones hold nothing to lose.
CREATE FUNCTION onceward.purge_parts(token bigint, grace_ms bigint, audit_ms bigint, n_blocks bigint, one_a_day boolean,
  OUT doing smallint, OUT day date, OUT parent text, OUT name text, OUT records bigint, OUT listed bigint)
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
  r    onceward.retention;
  over record;
  part record;
  step record;
BEGIN
  IF NOT onceward.retention_take('parts', token, 20000) THEN
    doing := 4;
    RETURN;
  END IF;
  SELECT * INTO r FROM onceward.retention WHERE task = 'parts';
  IF r.going IS NULL THEN
    SELECT * INTO over FROM onceward.parts_over(grace_ms, audit_ms) AS o
    WHERE NOT one_a_day OR o.empty OR o.parents = ARRAY['audit']
       OR (r.done_at AT TIME ZONE 'UTC')::date < (now() AT TIME ZONE 'UTC')::date
    LIMIT 1;
    IF NOT FOUND THEN
      PERFORM onceward.retention_leave('parts', token, false);
      doing := 0;
      RETURN;
    END IF;
    UPDATE onceward.retention SET going = over.day, parents = over.parents, block = 0, records = 0, listed = 0,
                                  closed = over.parents = ARRAY['audit']
    WHERE task = 'parts';
    day := over.day;
    doing := 1;
    RETURN;
  END IF;
  day := r.going;
  IF NOT r.closed THEN
    step := onceward.close_day(r.going, r.block, n_blocks);
    IF step.held THEN
      doing := 5;
      RETURN;
    END IF;
    UPDATE onceward.retention AS t
    SET block = t.block + n_blocks, records = t.records + step.records, listed = t.listed + step.listed,
        closed = t.block + n_blocks >= (SELECT coalesce(max(onceward.blocks(p.oid)), 0) FROM onceward.part AS p
                                        WHERE p.name = 'op_' || to_char(r.going, 'YYYYMMDD'))
    WHERE task = 'parts';
    doing := 1;
    RETURN;
  END IF;
  -- In the order of `parents`: op before event.
  FOR part IN SELECT p.* FROM onceward.part AS p
              WHERE p.day = r.going AND p.parent = ANY (r.parents) AND p.attached
              ORDER BY array_position(r.parents, p.parent) LOOP
    parent := part.parent;
    name := part.name;
    IF part.leaving THEN   -- whoever began it did not come to its end
      EXECUTE format('ALTER TABLE onceward.%I DETACH PARTITION onceward.%I FINALIZE', parent, name);
      doing := 1;
    ELSE
      doing := 2;
    END IF;
    RETURN;
  END LOOP;
  parent := NULL;
  name := array_to_string(r.parents, ' and ') || ' of ' || r.going;
  FOR part IN SELECT p.* FROM onceward.part AS p WHERE p.day = r.going AND p.parent = ANY (r.parents) LOOP
    EXECUTE format('DROP TABLE onceward.%I', part.name);
  END LOOP;
  records := r.records;
  listed := r.listed;
  INSERT INTO onceward.audit (who, action, about, reason, detail)
  VALUES ('onceward', 'purge', name, 'retention',
          CASE WHEN r.parents = ARRAY['audit'] THEN ''
          ELSE r.records || ' records, of which ' || r.listed || ' had no end and stay on the attention list' END);
  UPDATE onceward.retention AS t
  SET going = NULL, parents = NULL,
      done_at = CASE WHEN one_a_day AND r.records > 0 THEN now() ELSE t.done_at END
  WHERE task = 'parts';
  doing := 3;
END $$;

-- --- rows: a hand goes over the heap, stretch by stretch, and needs no index ---

-- Keys that may go. One of a day that still stands has its end in slot 1 there, and the tombstone counts
-- from that (it may have been unknown for long), or it is under way; of
-- days that are gone every record that had no known end is on the list. What has ended later than its
-- first attempt is kept by its rows in event_late. OFFSET 0 keeps each look-up a look-up, of the few rows
-- that are over: a join would read all of event for every stretch.
CREATE VIEW onceward.key_over AS
SELECT k.ctid AS place, k.op_id FROM onceward.key AS k
WHERE k.keep_until < now()
  AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = k.op_id OFFSET 0)
  AND NOT EXISTS (SELECT FROM onceward.event_late AS l WHERE l.op_id = k.op_id AND l.keep_until >= now() OFFSET 0)
  AND ((k.expires_at AT TIME ZONE 'UTC')::date < (SELECT onceward.first_day())
       OR EXISTS (SELECT FROM onceward.event AS e WHERE e.op_id = k.op_id AND e.slot = 1
                    AND e.expires_on = (k.expires_at AT TIME ZONE 'UTC')::date
                    AND e.at + (k.keep_until - onceward.op_id_time(k.op_id)) < now() OFFSET 0));

-- One that is being inserted or freed at this moment is left for the next time: this waits for nobody.
CREATE FUNCTION onceward.purge_keys(from_block bigint, n_blocks bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  gone bigint;
BEGIN
  DELETE FROM onceward.key WHERE ctid = ANY (ARRAY(
    SELECT place FROM onceward.key_over
    WHERE place >= onceward.place(from_block) AND place < onceward.place(from_block + n_blocks)
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END $$;

-- What ended late: bodies at their expiry, rows when their record is over. All rows of a record go
-- together, and not before the day in whose slot 1 it is unknown.
CREATE VIEW onceward.late_over AS
SELECT l.ctid AS place, l.op_id FROM onceward.event_late AS l
WHERE l.keep_until < now()
  AND NOT EXISTS (SELECT FROM onceward.event_late AS o WHERE o.op_id = l.op_id AND o.keep_until >= now() OFFSET 0)
  AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = l.op_id OFFSET 0)
  AND NOT EXISTS (SELECT FROM onceward.event AS e WHERE e.op_id = l.op_id AND e.slot = 1 OFFSET 0);

CREATE FUNCTION onceward.purge_late(from_block bigint, n_blocks bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  gone bigint;
BEGIN
  DELETE FROM onceward.event_late WHERE ctid = ANY (ARRAY(
    SELECT place FROM onceward.late_over
    WHERE place >= onceward.place(from_block) AND place < onceward.place(from_block + n_blocks)));
  GET DIAGNOSTICS gone = ROW_COUNT;
  UPDATE onceward.event_late AS l SET headers = NULL, body = NULL, hash = NULL
  WHERE l.ctid >= onceward.place(from_block) AND l.ctid < onceward.place(from_block + n_blocks)
    AND l.expires_at < now() AND (l.hash IS NOT NULL OR l.headers IS NOT NULL OR l.body IS NOT NULL)
    AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = l.op_id OFFSET 0);
  RETURN gone;
END $$;

CREATE FUNCTION onceward.purge_receipts(from_block bigint, n_blocks bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  gone bigint;
BEGIN
  DELETE FROM onceward.receipt AS r
  WHERE r.ctid >= onceward.place(from_block) AND r.ctid < onceward.place(from_block + n_blocks)
    AND r.keep_until < now()
    AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = r.op_id OFFSET 0)
    AND NOT EXISTS (SELECT FROM onceward.event_late AS l WHERE l.op_id = r.op_id AND l.keep_until >= now() OFFSET 0);
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END $$;

-- One step of the walk over `what` (0 keys, 1 event_late, 2 receipts), from `block` on; next_block NULL:
-- that was its end. mine: false where somebody else walks.
CREATE FUNCTION onceward.purge_rows(token bigint, what smallint, block bigint, n_blocks bigint,
  OUT mine boolean, OUT purged bigint, OUT next_block bigint)
LANGUAGE plpgsql AS $$
DECLARE
  walked regclass := (ARRAY['onceward.key', 'onceward.event_late', 'onceward.receipt'])[what + 1]::regclass;
BEGIN
  mine := onceward.retention_take('rows', token, 20000);
  IF NOT mine THEN
    RETURN;
  END IF;
  purged := CASE what WHEN 0 THEN onceward.purge_keys(block, n_blocks)
                      WHEN 1 THEN onceward.purge_late(block, n_blocks)
                      ELSE onceward.purge_receipts(block, n_blocks) END;
  next_block := block + n_blocks;
  IF next_block >= onceward.blocks(walked) THEN
    next_block := NULL;
  END IF;
END $$;

-- The end of a walk. Digest keys under which there can be no records any more go with it.
CREATE FUNCTION onceward.purge_rows_end(token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM onceward.digest_key WHERE keep_until < (now() AT TIME ZONE 'UTC')::date - 7;
  PERFORM onceward.retention_leave('rows', token, true);
END $$;

-- About how many rows are over: records of days, and keys, from a sample of a thousand pages.
CREATE FUNCTION onceward.purge_due(grace_ms bigint, audit_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  share real := least(100, 100000.0 / greatest(onceward.blocks('onceward.key'), 1));
BEGIN
  RETURN (SELECT coalesce(sum(about_rows), 0) FROM onceward.parts_over(grace_ms, audit_ms))
       + (SELECT count(*) * 100 / share FROM onceward.key TABLESAMPLE SYSTEM (share) WHERE keep_until < now())::bigint;
END $$;

-- What a purge would take away now, for people: `n` rows (of days: about), and bytes of days.
CREATE FUNCTION onceward.purge_report(grace_ms bigint, audit_ms bigint)
RETURNS TABLE (what text, n bigint, bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
  SELECT array_to_string(o.parents, ' and ') || ' of ' || o.day, o.about_rows, o.bytes
  FROM onceward.parts_over(grace_ms, audit_ms) AS o;
  RETURN QUERY
  SELECT 'keys', (SELECT count(*) FROM onceward.key_over), NULL::bigint
  UNION ALL
  SELECT 'late results', (SELECT count(*) FROM onceward.late_over), NULL
  UNION ALL
  SELECT 'responses of late results', (SELECT count(*) FROM onceward.event_late AS l
    WHERE l.expires_at < now() AND (l.hash IS NOT NULL OR l.headers IS NOT NULL OR l.body IS NOT NULL)
      AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = l.op_id)), NULL
  UNION ALL
  SELECT 'receipts', (SELECT count(*) FROM onceward.receipt AS r WHERE r.keep_until < now()), NULL;
END $$;

-- What there is to do. PostgreSQL's clock is compared with the gateway's before anything is done.
CREATE FUNCTION onceward.retention_look(grace_ms bigint, audit_ms bigint, walk_ms bigint, OUT clock_ms bigint,
  OUT parts integer, OUT rows boolean, OUT vacuum boolean, OUT erasures boolean, OUT due bigint)
LANGUAGE plpgsql AS $$
BEGIN
  clock_ms := extract(epoch FROM clock_timestamp()) * 1000;
  parts := (SELECT count(*) FROM onceward.parts_over(grace_ms, audit_ms))
         + (SELECT count(going) FROM onceward.retention);
  rows := EXISTS (SELECT FROM onceward.retention WHERE task = 'rows'
                  AND done_at < now() - walk_ms * interval '1 millisecond');
  vacuum := EXISTS (
    SELECT FROM onceward.retention AS r, pg_stat_user_tables AS s
    WHERE r.task = 'vacuum' AND s.relid = 'onceward.key'::regclass AND r.leased_until < now()
      AND (r.done_at < now() - interval '7 days' AND s.n_dead_tup > 1000
           OR r.done_at < now() - interval '1 hour' AND s.n_dead_tup > 10000 + s.n_live_tup / 5));
  erasures := EXISTS (SELECT FROM onceward.erasure) OR EXISTS (SELECT FROM onceward.erasure_record)
           OR EXISTS (SELECT FROM onceward.erasure_stop);
  due := onceward.purge_due(grace_ms, audit_ms);
END $$;

-- --- erasure by account ---

-- An erasure whose hand is still on its way over op, day by day.
CREATE TABLE onceward.erasure (
  account_hash bytea       PRIMARY KEY,  -- SHA-256
  asked_at     timestamptz NOT NULL DEFAULT now(),   -- records of earlier than this
  day          date        NOT NULL,
  block        bigint      NOT NULL DEFAULT 0,
  erased       bigint      NOT NULL DEFAULT 0
);

-- Records that are in flight or unknown, and are erased when they have an end.
CREATE TABLE onceward.erasure_record (
  op_id        bigint      PRIMARY KEY,
  expires_on   date        NOT NULL,
  account_hash bytea       NOT NULL
);

-- Stops of an erased account that are open: they need its name, and lose it when they end.
CREATE TABLE onceward.erasure_stop (
  id bigint PRIMARY KEY
);

-- Whose a row of event_late is, as SHA-256: its day may be gone, and with it what else tells.
ALTER TABLE onceward.event_late ADD COLUMN account_hash bytea;
CREATE OR REPLACE FUNCTION onceward.late_add(l onceward.event_late) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
  l.account_hash := coalesce((SELECT sha256(a.account) FROM onceward.attention AS a WHERE a.op_id = l.op_id),
                             (SELECT o.account_hash FROM onceward.event_late AS o
                              WHERE o.op_id = l.op_id AND o.account_hash IS NOT NULL LIMIT 1));
  IF l.slot < 0 AND EXISTS (SELECT FROM onceward.op AS o WHERE o.op_id = l.op_id AND o.account = '') THEN
    l.headers := NULL; l.body := NULL; l.receipt := NULL; l.note := NULL; -- erased: nothing comes back as evidence
  END IF;
  INSERT INTO onceward.event_late VALUES (l.*) ON CONFLICT (op_id, slot) DO NOTHING;
  RETURN FOUND;
END $$;

-- Has the record an end that nothing but an operator changes?
CREATE FUNCTION onceward.has_end(op_id bigint, day date) RETURNS boolean LANGUAGE plpgsql STABLE
SET enable_seqscan = off AS $$
BEGIN
  IF EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = has_end.op_id) THEN
    RETURN false;
  END IF;
  RETURN EXISTS (SELECT FROM onceward.event AS e
                 WHERE e.op_id = has_end.op_id AND e.slot = 1 AND e.expires_on = has_end.day AND e.kind IN (2, 4))
      OR EXISTS (SELECT FROM onceward.event_late AS l
                 WHERE l.op_id = has_end.op_id AND l.slot > 0 AND l.kind IN (2, 4));
END $$;

-- Rows without a hash are "not retained" to every reader: what was hashed is gone. An account or key of
-- no bytes is nobody's. `places`: where the records stand in op.
CREATE FUNCTION onceward.erase_records(op_ids bigint[], day date, places tid[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
  UPDATE onceward.event AS e
  SET headers = NULL, body = NULL, hash = NULL, receipt = NULL, usage = NULL, note = NULL
  WHERE e.op_id = ANY (op_ids) AND e.slot = 1 AND e.expires_on = erase_records.day;
  UPDATE onceward.event_late AS l
  SET headers = NULL, body = NULL, hash = NULL, receipt = NULL, usage = NULL, note = NULL
  WHERE l.op_id = ANY (op_ids);
  UPDATE onceward.op AS o SET account = '', key = ''
  WHERE o.expires_on = erase_records.day AND o.ctid = ANY (places);
END $$;

-- Records of an account that event_late alone still knows, and that have an end.
CREATE FUNCTION onceward.late_of(account_hash bytea) RETURNS SETOF bigint LANGUAGE plpgsql STABLE
SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY
  SELECT DISTINCT l.op_id FROM onceward.event_late AS l
  WHERE l.account_hash = late_of.account_hash
    AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = l.op_id)
    AND NOT EXISTS (SELECT FROM onceward.event AS e WHERE e.op_id = l.op_id AND e.slot = 1);
END $$;

-- One step of an erasure: a stretch of a day. What has an end is erased; what has none yet is noted.
-- done: its hand has been everywhere.
CREATE FUNCTION onceward.erase_step(account_hash bytea, n_blocks bigint, OUT done boolean, OUT erased bigint)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  job    onceward.erasure;
  hit    record;
  next   date;
BEGIN
  erased := 0;
  SELECT * INTO job FROM onceward.erasure AS j WHERE j.account_hash = erase_step.account_hash FOR UPDATE;
  IF NOT FOUND THEN
    done := true;
    RETURN;
  END IF;
  WITH record AS MATERIALIZED (
    SELECT o.ctid AS place, o.op_id, onceward.has_end(o.op_id, job.day) AS ended FROM onceward.op AS o
    WHERE o.expires_on = job.day AND o.ctid >= onceward.place(job.block) AND o.ctid < onceward.place(job.block + n_blocks)
      AND sha256(o.account) = job.account_hash AND o.created_at <= job.asked_at),
  noted AS (
    INSERT INTO onceward.erasure_record (op_id, expires_on, account_hash)
    SELECT op_id, job.day, job.account_hash FROM record WHERE NOT ended
    ON CONFLICT (op_id) DO NOTHING)
  SELECT array_agg(op_id ORDER BY op_id) AS op_ids, array_agg(place) AS places, count(*) AS n INTO hit
  FROM record WHERE ended;
  IF hit.n > 0 THEN
    PERFORM onceward.erase_records(hit.op_ids, job.day, hit.places);
    erased := hit.n;
  END IF;
  job.block := job.block + n_blocks;
  done := false;
  IF job.block >= (SELECT coalesce(max(onceward.blocks(p.oid)), 0) FROM onceward.part AS p
                   WHERE p.parent = 'op' AND p.attached AND p.day = job.day) THEN
    job.block := 0;
    next := (SELECT min(p.day) FROM onceward.part AS p WHERE p.parent = 'op' AND p.attached AND p.day > job.day);
    done := next IS NULL;
    job.day := coalesce(next, job.day);
  END IF;
  job.erased := job.erased + erased;
  IF done THEN
    DELETE FROM onceward.erasure AS j WHERE j.account_hash = job.account_hash;
    INSERT INTO onceward.audit (who, action, about, reason, detail)
    VALUES ('onceward', 'erased', 'account ' || encode(job.account_hash, 'hex'), 'erasure', job.erased || ' records');
  ELSE
    UPDATE onceward.erasure AS j SET day = job.day, block = job.block, erased = job.erased
    WHERE j.account_hash = job.account_hash;
  END IF;
END $$;

-- Records that were waited for and have an end now. Of a day that is gone only event_late is left.
CREATE FUNCTION onceward.erase_settled(at_most integer) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
  first date := onceward.first_day();
  one   record;
  n     bigint := 0;
BEGIN
  FOR one IN SELECT w.* FROM onceward.erasure_record AS w
             WHERE onceward.has_end(w.op_id, w.expires_on)
                OR (w.expires_on < first AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = w.op_id))
             ORDER BY w.op_id LIMIT at_most FOR UPDATE SKIP LOCKED LOOP
    PERFORM onceward.erase_records(ARRAY[one.op_id], one.expires_on, ARRAY(
      SELECT o.ctid FROM onceward.op AS o WHERE o.expires_on = one.expires_on AND o.op_id = one.op_id));
    DELETE FROM onceward.erasure_record AS w WHERE w.op_id = one.op_id;
    n := n + 1;
  END LOOP;
  RETURN n;
END $$;

-- Stops that have ended and say of whom they were.
CREATE FUNCTION onceward.erase_stops() RETURNS void LANGUAGE sql AS $$
  WITH ended AS (
    DELETE FROM onceward.erasure_stop AS w USING onceward.stop AS s WHERE s.id = w.id AND s.ended_at IS NOT NULL
    RETURNING w.id)
  UPDATE onceward.stop AS s SET account = sha256(s.account), detail = 'erased' FROM ended WHERE s.id = ended.id
$$;

-- Erases what is kept of an account's records up to now. What cannot be done within two seconds goes
-- on in the back office, as does what has no end yet. `waiting`: how many records wait for their end,
-- and one more while the search goes on; 0: all is done. Of a dry run both are counted, and nothing else.
CREATE FUNCTION onceward.erase(account bytea, who text, reason text, dry_run boolean)
RETURNS TABLE (erased bigint, waiting bigint) LANGUAGE plpgsql AS $$
DECLARE
  whose bytea := sha256(account);
  step  record;
  until timestamptz := clock_timestamp() + interval '2 seconds';
  first date := (SELECT min(p.day) FROM onceward.part AS p WHERE p.parent = 'op' AND p.attached);
BEGIN
  IF dry_run THEN
    RETURN QUERY
    SELECT count(*) FILTER (WHERE r.ended), count(*) FILTER (WHERE NOT r.ended)
    FROM (SELECT onceward.has_end(o.op_id, o.expires_on) AS ended FROM onceward.op AS o WHERE o.account = erase.account
          UNION ALL
          SELECT true FROM onceward.late_of(whose)
          UNION ALL
          SELECT false FROM onceward.attention AS a WHERE a.account = erase.account AND a.expires_on < first) AS r;
    RETURN;
  END IF;
  INSERT INTO onceward.audit (who, action, about, reason)
  VALUES (erase.who, 'erase', 'account ' || encode(whose, 'hex'), erase.reason);
  INSERT INTO onceward.erasure_stop SELECT s.id FROM onceward.stop AS s WHERE s.account = erase.account
  ON CONFLICT DO NOTHING;
  PERFORM onceward.erase_stops();
  INSERT INTO onceward.erasure_record (op_id, expires_on, account_hash)
  SELECT a.op_id, a.expires_on, whose FROM onceward.attention AS a WHERE a.account = erase.account
  ON CONFLICT (op_id) DO NOTHING;
  erased := (SELECT count(*) FROM onceward.late_of(whose));
  UPDATE onceward.event_late AS l
  SET headers = NULL, body = NULL, hash = NULL, receipt = NULL, usage = NULL, note = NULL
  WHERE l.account_hash = whose AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = l.op_id);
  INSERT INTO onceward.erasure AS j (account_hash, day) VALUES (whose, coalesce(first, 'epoch'))
  ON CONFLICT (account_hash) DO UPDATE SET asked_at = now(), day = EXCLUDED.day, block = 0;
  LOOP
    step := onceward.erase_step(whose, 512);
    erased := erased + step.erased;
    EXIT WHEN step.done OR clock_timestamp() > until;
  END LOOP;
  waiting := (SELECT count(*) FROM onceward.erasure_record AS w WHERE w.account_hash = whose)
           + (SELECT count(*) FROM onceward.erasure AS j WHERE j.account_hash = whose);
  RETURN NEXT;
END $$;

-- The back office's turn at erasures: of each that is under way a stretch, and what has got its end.
CREATE FUNCTION onceward.erase_next(token bigint, n_blocks bigint, OUT more boolean, OUT erased bigint)
LANGUAGE plpgsql AS $$
DECLARE
  job  bytea;
  step record;
BEGIN
  erased := 0;
  more := onceward.retention_take('erase', token, 20000);
  IF NOT more THEN
    RETURN;
  END IF;
  FOR job IN SELECT j.account_hash FROM onceward.erasure AS j ORDER BY j.asked_at LIMIT 10 LOOP
    step := onceward.erase_step(job, n_blocks);
    erased := erased + step.erased;
  END LOOP;
  erased := erased + onceward.erase_settled(100);
  PERFORM onceward.erase_stops();
  more := EXISTS (SELECT FROM onceward.erasure);
  IF NOT more THEN
    PERFORM onceward.retention_leave('erase', token, true);
  END IF;
END $$;

INSERT INTO onceward.schema_version (version, oldest_program) VALUES (3, 2);
