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

-- For how long the attempt may still be believed to run, in milliseconds; NULL: there is no such row. The setting
-- holds for this function alone: a plan made while a day was empty would else read all of it later.
CREATE FUNCTION onceward.lease_left(op_id bigint, day date) RETURNS bigint LANGUAGE plpgsql STABLE
SET enable_seqscan = off AS $$
BEGIN
  RETURN (SELECT (extract(epoch FROM op.lease_until - now()) * 1000)::bigint FROM onceward.op AS op
          WHERE op.op_id = lease_left.op_id AND op.expires_on = lease_left.day);
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
