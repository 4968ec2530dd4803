-- The ledger, version 1. Append-only: nothing on the normal path is ever updated.
--
-- Times are PostgreSQL's own clock alone. All that clients send is bytea: no encoding error and no
-- CHECK on a client's value can fail the batch it shares with others. op and event are partitioned
-- by the UTC day on which the response expires; partitions are made ahead by LIKE + ATTACH (never
-- CREATE ... PARTITION OF, never a DEFAULT partition: both stall every settle) and leave by
-- DETACH CONCURRENTLY + DROP.

CREATE SCHEMA onceward;

CREATE TABLE onceward.schema_version (
  version        integer     PRIMARY KEY,
  oldest_program integer     NOT NULL,   -- the oldest program (its own schema version) that may use this schema
  applied_at     timestamptz NOT NULL DEFAULT now()
);

-- Identity and tombstone. The only random index; the uniqueness of (account, operation, key).
CREATE TABLE onceward.key (
  key_hash   uuid        NOT NULL,       -- 128 bits of HMAC-SHA-256 over account, operation, key
  op_id      bigint      NOT NULL,       -- made by the gateway, time-ordered: says who won
  expires_at timestamptz NOT NULL,       -- until then the response is kept; its UTC day is the partition
  keep_until timestamptz NOT NULL,       -- until then the key is remembered
  digest     bytea       NOT NULL,       -- 32 bytes, of the canonical request
  raw_digest bytea       NOT NULL,       -- 16 bytes, of the request as received
  rules_id   bigint      NOT NULL,
  digest_key integer     NOT NULL,       -- id of the digest's key; 0: none
  PRIMARY KEY (key_hash)
);

-- The facts for people and for recovery.
CREATE TABLE onceward.op (
  op_id       bigint      NOT NULL,
  expires_on  date        NOT NULL,
  key_hash    uuid        NOT NULL,
  created_at  timestamptz NOT NULL,
  lease_until timestamptz NOT NULL,
  account     bytea       NOT NULL,
  operation   bytea       NOT NULL,
  key         bytea       NOT NULL,
  gateway     bytea       NOT NULL,      -- instance number and host, for people
  settings    bytea       NOT NULL       -- fingerprint of the settings it was reserved under
) PARTITION BY RANGE (expires_on);
CREATE INDEX op_id_brin ON onceward.op USING brin (op_id) WITH (pages_per_range = 32, autosummarize = on);

-- How the first attempt ended: slot 1 alone. The first insert wins.
-- kind: 1 claim (of a resend), 2 completed, 3 unknown, 4 released
CREATE TABLE onceward.event (
  op_id      bigint      NOT NULL,
  at         timestamptz NOT NULL DEFAULT now(),
  writer     bigint      NOT NULL,       -- whose insert it was: recognises one's own after a lost reply
  expires_on date        NOT NULL,
  slot       smallint    NOT NULL,
  kind       smallint    NOT NULL,
  status     smallint,
  headers    bytea,                      -- "name: value" lines, CRLF after each
  body       bytea,                      -- NULL: not kept
  hash       bytea,                      -- SHA-256 over key, op_id, slot, status, headers, body
  receipt    bytea,
  usage      bytea,
  note       bytea,                      -- the cause, for people
  PRIMARY KEY (op_id, slot, expires_on)
) PARTITION BY RANGE (expires_on);

-- Slots from 2 on (resends, late answers, lookups, resolutions) and, below 0, evidence that may not decide.
CREATE TABLE onceward.event_late (
  op_id       bigint      NOT NULL,
  slot        smallint    NOT NULL,
  at          timestamptz NOT NULL DEFAULT now(),
  writer      bigint      NOT NULL,
  expires_at  timestamptz NOT NULL,
  kind        smallint    NOT NULL,
  lease_until timestamptz,
  status      smallint,
  headers     bytea,
  body        bytea,
  hash        bytea,
  receipt     bytea,
  usage       bytea,
  note        bytea,
  PRIMARY KEY (op_id, slot)
);

-- lz4 takes half of the CPU of PostgreSQL's own compression. A server built without it does without.
DO $$
BEGIN
  ALTER TABLE onceward.event ALTER COLUMN body SET COMPRESSION lz4;
  ALTER TABLE onceward.event_late ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
  NULL;
END $$;

-- The small mutable list of records that wait for somebody: stale in flight (1) and unknown (3).
CREATE TABLE onceward.attention (
  created_at  timestamptz NOT NULL,
  op_id       bigint      PRIMARY KEY,   -- the only uniqueness: ON CONFLICT knows one index
  expires_on  date        NOT NULL,
  state       smallint    NOT NULL,
  slot        smallint    NOT NULL,      -- the last slot taken; 0: only reserved
  listed_at   timestamptz NOT NULL DEFAULT now(),
  lease_until timestamptz,               -- of whoever works on it
  owner       bigint,
  key_hash    uuid        NOT NULL,
  account     bytea       NOT NULL,
  operation   bytea       NOT NULL,
  key         bytea       NOT NULL,
  cause       bytea       NOT NULL,
  tries       integer     NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
CREATE INDEX attention_page ON onceward.attention (created_at, op_id);
CREATE INDEX attention_operation ON onceward.attention (operation, created_at);

-- Only for routes that declare their receipts unique.
CREATE TABLE onceward.receipt (
  receipt_hash uuid        PRIMARY KEY,  -- of account, operation, receipt
  op_id        bigint      NOT NULL,
  keep_until   timestamptz NOT NULL
);

-- What makes each operation what it is; compared by every gateway.
CREATE TABLE onceward.identity (
  operation  text        PRIMARY KEY,
  identity   bytea       NOT NULL,       -- SHA-256 of `text`
  text       text        NOT NULL,
  since      timestamptz NOT NULL DEFAULT now()
);

-- The rules by which requests are compared, as readable text.
CREATE TABLE onceward.rules (
  id    bigint      PRIMARY KEY,
  text  text        NOT NULL,
  since timestamptz NOT NULL DEFAULT now()
);

-- Under which digest keys there may be records, and until when: a row a day and key, added by the
-- gateways that make digests under it, from the moment they take it up. Who lacks a key of this list
-- cannot tell what its records are about.
CREATE TABLE onceward.digest_key (
  id         integer     NOT NULL,
  keep_until date        NOT NULL,       -- no record that was made before the next row is kept longer
  since      timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (id, keep_until)
);

-- What migrate makes and gateways read. Losing it makes every key new: back it up with the ledger.
CREATE TABLE onceward.secret (
  name  text  PRIMARY KEY,
  value bytea NOT NULL
);
INSERT INTO onceward.secret
SELECT name, decode(replace(gen_random_uuid()::text, '-', '') || replace(gen_random_uuid()::text, '-', ''), 'hex')
FROM unnest(ARRAY['key_salt', 'request_id_key', 'cursor_key']) AS name;

CREATE TABLE onceward.stop (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  operation text,                        -- NULL: everything
  account   bytea,                       -- NULL: every account
  reason    text        NOT NULL,
  detail    text        NOT NULL,
  raised_by text        NOT NULL,
  raised_at timestamptz NOT NULL DEFAULT now(),
  ended_at  timestamptz,
  ended_by  text,
  end_reason text
);
CREATE INDEX stop_open ON onceward.stop (id) WHERE ended_at IS NULL;

-- Instance numbers, leased by the threads that make op_ids.
CREATE TABLE onceward.instance (
  number     integer     PRIMARY KEY,
  token      bigint      NOT NULL DEFAULT 0,
  gateway    text        NOT NULL DEFAULT '',
  renewed_at timestamptz NOT NULL DEFAULT '-infinity',
  high_ms    bigint      NOT NULL DEFAULT 0   -- the last millisecond an op_id was made of
) WITH (fillfactor = 50);
INSERT INTO onceward.instance (number) SELECT generate_series(0, 2047);

-- What operators and purges did; outlives responses.
CREATE TABLE onceward.audit (
  id     bigint GENERATED ALWAYS AS IDENTITY,
  at     timestamptz NOT NULL DEFAULT now(),
  who    text        NOT NULL,
  action text        NOT NULL,
  about  text        NOT NULL,
  reason text        NOT NULL,
  detail text        NOT NULL DEFAULT '',
  PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);

-- One day of op and event, where it is not there yet; true: it was made. On the parents this takes
-- SHARE UPDATE EXCLUSIVE, which nobody who reads or writes waits for. Two that make the same day
-- take turns; one that would have to wait long gives up, and is tried again. What is there is read
-- from pg_class: to_regclass may answer from before the turn.
CREATE FUNCTION onceward.make_day(day date) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '2s' AS $$
DECLARE
  parent text;
  part   text;
  made   boolean := false;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('onceward partitions'));
  FOREACH parent IN ARRAY ARRAY['op', 'event'] LOOP
    part := parent || '_' || to_char(day, 'YYYYMMDD');
    IF NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = 'onceward'::regnamespace AND relname = part) THEN
      EXECUTE format('CREATE TABLE onceward.%I (LIKE onceward.%I INCLUDING ALL) WITH (autovacuum_vacuum_insert_scale_factor = 1)', part, parent);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_inherits
                   WHERE inhparent = ('onceward.' || quote_ident(parent))::regclass
                     AND inhrelid = ('onceward.' || quote_ident(part))::regclass) THEN
      EXECUTE format('ALTER TABLE onceward.%I ATTACH PARTITION onceward.%I FOR VALUES FROM (%L) TO (%L)', parent, part, day, day + 1);
      made := true;
    END IF;
  END LOOP;
  RETURN made;
END $$;

-- Does a commit of this session outlive a crash, and, where standbys are named, a failover? Asked with
-- every batch: behind a pooler each may meet another session.
CREATE FUNCTION onceward.durable() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT current_setting('synchronous_commit') <> 'off'
     AND (current_setting('synchronous_commit') <> 'local' OR current_setting('synchronous_standby_names') = '')
$$;

-- What is read by key or by op_id stands in functions for one reason: enable_seqscan is off inside
-- them, and nowhere else. A plan that is made while a table is small reads all of it, and a prepared
-- statement keeps that plan when the table has grown. No session's state is touched, so this holds
-- behind a pooler as well.

-- For how long the attempt may still be believed to run, in milliseconds; NULL: there is no such row.
CREATE FUNCTION onceward.lease_left(op_id bigint, day date) RETURNS bigint LANGUAGE plpgsql STABLE
SET enable_seqscan = off AS $$
BEGIN
  RETURN (SELECT (extract(epoch FROM op.lease_until - now()) * 1000)::bigint FROM onceward.op AS op
          WHERE op.op_id = lease_left.op_id AND op.expires_on = lease_left.day);
END $$;

-- What stands under these keys.
CREATE FUNCTION onceward.read_keys(hashes uuid[])
RETURNS TABLE (key_hash uuid, op_id bigint, day date, digest bytea, raw_digest bytea, rules_id bigint,
               digest_key integer, expired boolean, expires bigint)
LANGUAGE plpgsql STABLE ROWS 100 SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY
  SELECT k.key_hash, k.op_id, (k.expires_at AT TIME ZONE 'UTC')::date, k.digest, k.raw_digest,
         k.rules_id, k.digest_key, k.expires_at <= now(), extract(epoch FROM k.expires_at)::bigint
  FROM onceward.key AS k WHERE k.key_hash = ANY (hashes);
END $$;

-- How these attempts ended, all of one day: a scalar date lets the planner open one partition. Where
-- there is no event, and it is asked for, how much of the lease is left, by this clock. OFFSET 0
-- keeps the look-ups from becoming a join over the whole day. Of bodies at most 8 MiB are given, and
-- one; those left out are asked for again.
CREATE FUNCTION onceward.read_records(op_ids bigint[], look_at_leases smallint[], day date)
RETURNS TABLE (place bigint, kind smallint, status smallint, headers bytea, body bytea, hash bytea,
               writer bigint, at bigint, lease_left bigint, left_out boolean)
LANGUAGE plpgsql STABLE ROWS 100 SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY
  WITH found AS (
    SELECT t.place, t.op_id, t.look, e.*, sum(octet_length(e.body)) OVER (ORDER BY t.place) AS so_far
    FROM unnest(op_ids, look_at_leases) WITH ORDINALITY AS t(op_id, look, place)
    LEFT JOIN LATERAL (
      SELECT event.kind, event.status, event.headers, event.body, event.hash, event.writer, event.at
      FROM onceward.event
      WHERE event.op_id = t.op_id AND event.slot = 1 AND event.expires_on = read_records.day
      OFFSET 0) AS e ON true)
  SELECT f.place, f.kind, f.status, f.headers, CASE WHEN f.so_far <= 8388608 OR f.place = 1 THEN f.body END,
         f.hash, f.writer, extract(epoch FROM f.at)::bigint,
         CASE WHEN f.kind IS NULL AND f.look = 1 THEN onceward.lease_left(f.op_id, read_records.day) END,
         f.body IS NOT NULL AND f.so_far > 8388608 AND f.place > 1
  FROM found AS f;
END $$;

-- Attempts that provably had no effect: the end is written (kind 4), and the key is free again. The
-- key goes only where this statement took the slot, and only where it is still this op_id's.
CREATE FUNCTION onceward.release(writer bigint, op_ids bigint[], days date[], hashes uuid[], notes bytea[])
RETURNS SETOF bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY
  WITH item AS MATERIALIZED (
    SELECT * FROM unnest(op_ids, days, hashes, notes) AS t(op_id, day, key_hash, note)),
  ended AS (
    INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, note)
    SELECT item.op_id, release.writer, item.day, 1, 4, item.note FROM item
    ON CONFLICT (op_id, slot, expires_on) DO NOTHING
    RETURNING event.op_id),
  freed AS (
    DELETE FROM onceward.key AS k USING item JOIN ended ON ended.op_id = item.op_id
    WHERE k.key_hash = item.key_hash AND k.op_id = item.op_id)
  SELECT ended.op_id FROM ended;
END $$;

-- Keys that stand though their attempt was released: a backend that nobody waited for any more did
-- the insert after all. The end that is written (kind 4) is final, so the key is free.
CREATE FUNCTION onceward.free_keys(hashes uuid[], op_ids bigint[], days date[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  DELETE FROM onceward.key AS k USING unnest(hashes, op_ids, days) AS t(key_hash, op_id, day)
  WHERE k.key_hash = t.key_hash AND k.op_id = t.op_id
    AND EXISTS (SELECT FROM onceward.event AS e
                WHERE e.op_id = t.op_id AND e.slot = 1 AND e.expires_on = t.day AND e.kind = 4);
END $$;

-- One month of the audit table. Months are UTC's whatever the session's time zone is, and an
-- identity belongs to the parent alone (from PostgreSQL 17 on a partition may not have its own).
CREATE FUNCTION onceward.make_month(month date) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '2s' AS $$
DECLARE
  start timestamp := date_trunc('month', month::timestamp);
  part  text := 'audit_' || to_char(month, 'YYYYMM');
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('onceward partitions'));
  IF EXISTS (SELECT FROM pg_class WHERE relnamespace = 'onceward'::regnamespace AND relname = part) THEN
    RETURN false;
  END IF;
  EXECUTE format('CREATE TABLE onceward.%I (LIKE onceward.audit INCLUDING ALL EXCLUDING IDENTITY)', part);
  EXECUTE format('ALTER TABLE onceward.audit ATTACH PARTITION onceward.%I FOR VALUES FROM (%L) TO (%L)',
                 part, start || '+00', (start + interval '1 month') || '+00');
  RETURN true;
END $$;

INSERT INTO onceward.schema_version (version, oldest_program) VALUES (1, 1);
