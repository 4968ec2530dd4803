-- The ledger, version 4: records as people see them (commands and the admin listener), and the steps
-- of a provider's report. Nothing here shows a payload; accounts and keys are the first 12 hex digits
-- of their SHA-256 unless they are to be revealed.

-- Bytes of others as text: what is not UTF-8 is escaped as PostgreSQL does.
CREATE FUNCTION onceward.readable(bytes bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  RETURN encode(bytes, 'escape');
END $$;

-- NULL: it was erased.
CREATE FUNCTION onceward.named(bytes bytea, reveal boolean) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN bytes = '' THEN NULL WHEN reveal THEN onceward.readable(bytes) ELSE substr(encode(sha256(bytes), 'hex'), 1, 12) END
$$;

-- As in the gateways' logs.
CREATE FUNCTION onceward.logged(key_hash uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT substr(encode(uuid_send(key_hash), 'hex'), 1, 12)
$$;

CREATE FUNCTION onceward.utc(at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN isfinite(at) THEN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') ELSE at::text END
$$;

CREATE FUNCTION onceward.micros(at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT (extract(epoch FROM at) * 1000000)::bigint
$$;

-- The first op_id of a moment.
CREATE FUNCTION onceward.op_id_at(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(0, (extract(epoch FROM at) * 1000)::bigint - 1577836800000) << 22
$$;

CREATE FUNCTION onceward.kind_word(kind smallint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT (ARRAY['resend', 'completed', 'unknown', 'released'])[kind]
$$;
CREATE FUNCTION onceward.source_word(source smallint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT (ARRAY['attempt', 'lookup', 'operator', 'report', 'deadline'])[source + 1]
$$;

-- How often a record's answer was given again; for people. A row goes soon after the day on which the answer
-- expires.
CREATE TABLE onceward.replay (
  op_id      bigint      PRIMARY KEY,
  expires_on date        NOT NULL,
  n          bigint      NOT NULL,
  last_at    timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX replay_expires ON onceward.replay (expires_on);

-- The arrays arrive sorted by op_id. Some of what is over goes at the same time, as far as nobody holds it.
CREATE FUNCTION onceward.add_replays(op_ids bigint[], counts bigint[], days date[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
  INSERT INTO onceward.replay AS r (op_id, expires_on, n, last_at)
  SELECT t.op_id, t.day, t.n, now() FROM unnest(op_ids, counts, days) AS t(op_id, n, day)
  ON CONFLICT (op_id) DO UPDATE SET n = r.n + EXCLUDED.n, last_at = EXCLUDED.last_at;
  DELETE FROM onceward.replay AS r USING (
    SELECT o.op_id FROM onceward.replay AS o WHERE o.expires_on < (now() AT TIME ZONE 'UTC')::date - 1
    ORDER BY o.expires_on LIMIT 2000 FOR UPDATE SKIP LOCKED) AS over
  WHERE r.op_id = over.op_id;
END $$;

-- The one word for what a record is: a lease that ran out is unknown, whoever has written it down.
CREATE FUNCTION onceward.state_word(kind smallint, lease_left bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN kind = 2 THEN 'completed' WHEN kind = 4 THEN 'released'
              WHEN kind IN (0, 1) AND lease_left > 0 THEN 'in_flight' ELSE 'unknown' END
$$;

-- A page of what waits for somebody, in the order (created_at, op_id), behind that place. which: NULL all,
-- 'unknown', 'stale' (unknown because a lease ran out, and nobody has written it down), 'in_flight' (a resend is under way).
-- The last row has no op_id where there may be more: it says where to go on. At most 5,000 rows are
-- looked at, so a page may be short.
CREATE FUNCTION onceward.list_attention(which text, its_operation bytea, its_account bytea, before timestamptz, n integer,
                                        after_us bigint, after_id bigint, reveal boolean)
RETURNS TABLE (op_id bigint, day date, record json, next_us bigint, next_id bigint)
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
  looked integer := 0;
  shown  integer := 0;
  after  timestamptz := 'epoch'::timestamptz + after_us * interval '1 microsecond';
  state  text;
  page   refcursor;
  a      onceward.attention;
BEGIN
  IF its_operation IS NULL THEN
    OPEN page FOR SELECT * FROM onceward.attention AS t
      WHERE (t.created_at, t.op_id) > (after, after_id) AND t.created_at < before ORDER BY t.created_at, t.op_id LIMIT 5000;
  ELSE
    OPEN page FOR SELECT * FROM onceward.attention AS t
      WHERE t.operation = its_operation AND t.created_at >= after AND (t.created_at, t.op_id) > (after, after_id)
        AND t.created_at < before ORDER BY t.created_at, t.op_id LIMIT 5000;
  END IF;
  LOOP
    FETCH page INTO a;
    EXIT WHEN NOT FOUND;
    looked := looked + 1;
    state := CASE WHEN a.state = 2 AND a.claim_until > now() THEN 'in_flight' ELSE 'unknown' END;
    IF (which IS NULL OR which = state OR (which = 'stale' AND a.state <> 3 AND state = 'unknown'))
       AND (its_account IS NULL OR a.account = its_account) THEN
      shown := shown + 1;
      RETURN QUERY SELECT a.op_id, a.expires_on, json_build_object(
        'state', state, 'operation', onceward.readable(a.operation), 'account', onceward.named(a.account, reveal),
        'key', onceward.named(a.key, reveal), 'key_hash', onceward.logged(a.key_hash), 'created_at', onceward.utc(a.created_at), 'generation', a.generation,
        'cause', onceward.readable(a.cause), 'tries', a.tries, 'tried_at', onceward.utc(a.tried_at),
        'lease_until', onceward.utc(a.claim_until), 'due_at', onceward.utc(a.due_at)), NULL::bigint, NULL::bigint;
    END IF;
    EXIT WHEN shown = n OR looked = 5000;
  END LOOP;
  CLOSE page;
  IF shown = n OR looked = 5000 THEN
    RETURN QUERY SELECT NULL::bigint, NULL::date, NULL::json, onceward.micros(a.created_at), a.op_id;
  END IF;
END $$;

-- What records of one stretch of op_ids are. Every table is read once, and only in that stretch.
CREATE FUNCTION onceward.list_stretch(since bigint, upto bigint)
RETURNS TABLE (op onceward.op, kind smallint, lease_left bigint, generation smallint, status smallint, source smallint, at timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY
  WITH record AS MATERIALIZED (SELECT o FROM onceward.op AS o WHERE o.op_id >= since AND o.op_id < upto),
  ended AS MATERIALIZED (
    SELECT e.op_id, e.expires_on, e.kind, e.status, e.at FROM onceward.event AS e
    WHERE e.op_id >= since AND e.op_id < upto AND e.slot = 1),
  late AS MATERIALIZED (
    SELECT DISTINCT ON (l.op_id) l.op_id, l.kind, l.status, l.at, l.source, l.lease_until,
           (count(*) FILTER (WHERE l.kind = 1) OVER (PARTITION BY l.op_id) + 1)::smallint AS generation
    FROM onceward.event_late AS l
    WHERE l.op_id >= since AND l.op_id < upto AND l.slot > 0 ORDER BY l.op_id, l.slot DESC)
  SELECT r.o, w.kind, (extract(epoch FROM w.lease_until - now()) * 1000)::bigint, w.generation, w.status, w.source, w.at
  FROM record AS r
  LEFT JOIN ended AS e ON e.op_id = (r.o).op_id AND e.expires_on = (r.o).expires_on
  LEFT JOIN late AS l ON l.op_id = (r.o).op_id AND (e.kind IS NULL OR e.kind = 3)
  CROSS JOIN LATERAL (
    SELECT l.kind, l.lease_until, l.generation, l.status, l.source, l.at WHERE l.op_id IS NOT NULL
    UNION ALL
    SELECT coalesce(e.kind, 0::smallint), (r.o).lease_until, 1::smallint, e.status, 0::smallint, e.at WHERE l.op_id IS NULL) AS w
  ORDER BY (r.o).op_id;
END $$;

-- How many attempts one stretch has, counted to `most` and one more.
CREATE FUNCTION onceward.count_stretch(since bigint, upto bigint, most bigint) RETURNS bigint LANGUAGE plpgsql STABLE
SET enable_seqscan = off AS $$
BEGIN
  RETURN (SELECT count(*) FROM (SELECT FROM onceward.op AS o WHERE o.op_id >= since AND o.op_id < upto LIMIT most + 1) AS few);
END $$;

-- A page of all records of a state (NULL: of any), in the order of op_id, which is that of their creation:
-- windows of op_ids that grow where there is little and shrink where there is much. At most some 6,000
-- records are looked at, so a page may be short; the last row is as above.
CREATE FUNCTION onceward.list_windows(which text, its_operation bytea, its_account bytea, before timestamptz, n integer,
                                      after_id bigint, reveal boolean)
RETURNS TABLE (op_id bigint, day date, record json, next_us bigint, next_id bigint)
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
  since  bigint := after_id + 1;
  stop   bigint := onceward.op_id_at(least(before, now() + interval '1 minute'));
  width  bigint := 60000::bigint << 22;
  looked bigint := 0;
  shown  integer := 0;
  many   bigint;
  upto   bigint;
  r      record;
BEGIN
  FOR round IN 1..100 LOOP
    EXIT WHEN since >= stop OR looked >= 5000;
    upto := least(since + width, stop);
    many := onceward.count_stretch(since, upto, 1000);
    IF many > 1000 AND upto - since > 1 << 22 THEN
      width := greatest((upto - since) / 8, 1 << 22);
      CONTINUE;
    END IF;
    IF many > 0 THEN
      FOR r IN SELECT s.*, (s.op).op_id AS id, onceward.state_word(s.kind, s.lease_left) AS state
               FROM onceward.list_stretch(since, upto) AS s LOOP
        CONTINUE WHEN which <> r.state OR (which = 'in_flight' AND r.generation > 1)
          OR (r.op).operation <> its_operation OR (r.op).account <> its_account OR (r.op).created_at >= before;
        shown := shown + 1;
        RETURN QUERY SELECT r.id, (r.op).expires_on, json_build_object(
          'state', r.state, 'operation', onceward.readable((r.op).operation), 'account', onceward.named((r.op).account, reveal),
          'key', onceward.named((r.op).key, reveal), 'key_hash', onceward.logged((r.op).key_hash), 'created_at', onceward.utc((r.op).created_at), 'generation', r.generation,
          'source', onceward.source_word(r.source), 'status', r.status, 'ended_at', onceward.utc(r.at),
          'lease_until', CASE WHEN r.state = 'in_flight' THEN onceward.utc(now() + r.lease_left * interval '1 millisecond') END),
          NULL::bigint, NULL::bigint;
        IF shown = n THEN
          RETURN QUERY SELECT NULL::bigint, NULL::date, NULL::json, -1::bigint, r.id;
          RETURN;
        END IF;
      END LOOP;
    END IF;
    looked := looked + many;
    since := upto;
    IF many < 100 THEN
      width := least(width * 8, 1::bigint << 60);
    END IF;
  END LOOP;
  IF since < stop THEN
    RETURN QUERY SELECT NULL::bigint, NULL::date, NULL::json, -1::bigint, since - 1;
  END IF;
END $$;

-- A page of records. which: NULL what waits for somebody, 'unknown', 'stale', 'in_flight', 'completed',
-- 'released', or 'all'. after_us -1: in windows, behind after_id. What is in flight is listed twice
-- over: resends, which may be of old records, from the list, then first attempts of the longest lease and an hour.
CREATE FUNCTION onceward.list_records(which text, its_operation bytea, its_account bytea, older_than_ms bigint, n integer,
                                      after_us bigint, after_id bigint, reveal boolean)
RETURNS TABLE (op_id bigint, day date, record json, next_us bigint, next_id bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  before timestamptz := CASE WHEN older_than_ms IS NULL THEN 'infinity' ELSE now() - older_than_ms * interval '1 millisecond' END;
  first  bigint := onceward.op_id_at(now() - CASE which WHEN 'in_flight' THEN interval '25 hours' ELSE interval '401 days' END);
  r      record;
  shown  integer := 0;
  listed boolean := coalesce(which, 'unknown') IN ('unknown', 'stale', 'in_flight') AND after_us >= 0;
BEGIN
  IF NOT isfinite(before) THEN
    before := now() + interval '1 day';
  END IF;
  IF listed THEN
    FOR r IN SELECT * FROM onceward.list_attention(which, its_operation, its_account, before, n, after_us, after_id, reveal) LOOP
      RETURN QUERY SELECT r.op_id, r.day, r.record, r.next_us, r.next_id;
      shown := shown + 1;
      IF r.op_id IS NULL THEN
        RETURN;
      END IF;
    END LOOP;
    IF which IS DISTINCT FROM 'in_flight' THEN
      RETURN;
    END IF;
  END IF;
  RETURN QUERY SELECT * FROM onceward.list_windows(nullif(which, 'all'), its_operation, its_account, before, n - shown,
                                                   CASE WHEN after_us < 0 THEN greatest(after_id, first) ELSE first END, reveal);
END $$;

-- What has happened to a record, in the order in which it did; evidence that decided nothing has slots below 0.
CREATE FUNCTION onceward.history_of(its_id bigint, its_day date) RETURNS json LANGUAGE plpgsql STABLE
SET enable_seqscan = off AS $$
BEGIN
  RETURN (
    SELECT coalesce(json_agg(json_build_object(
             'at', onceward.utc(h.at), 'slot', h.slot, 'kind', onceward.kind_word(h.kind), 'source', onceward.source_word(h.source),
             'generation', nullif(h.generation, 0), 'status', h.status, 'receipt', onceward.readable(h.receipt),
             'note', onceward.readable(h.note), 'lease_until', onceward.utc(h.lease_until), 'body_bytes', h.bytes,
             'writer', h.writer::text) ORDER BY h.at, abs(h.slot)), '[]'::json)
    FROM (
      SELECT e.at, e.slot, e.kind, 0::smallint AS source, 1::smallint AS generation, e.status, e.receipt, e.note,
             NULL::timestamptz AS lease_until, octet_length(e.body) AS bytes, e.writer
      FROM onceward.event AS e WHERE e.op_id = its_id AND e.slot = 1 AND e.expires_on = its_day
      UNION ALL
      SELECT l.at, l.slot, l.kind, l.source, l.generation, l.status, l.receipt, l.note, l.lease_until, octet_length(l.body), l.writer
      FROM onceward.event_late AS l WHERE l.op_id = its_id) AS h);
END $$;

-- One record with all that is known of it; no row: nothing is. its_hash: its key's hash, where the
-- caller knows it; else it is looked for where the record's facts still stand. So is its_day.
CREATE FUNCTION onceward.show_record(its_id bigint, its_day date, its_hash uuid, reveal boolean)
RETURNS TABLE (day date, record json)
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
  o onceward.op;
  a onceward.attention;
  k onceward.key;
  s record;
  p onceward.replay;
BEGIN
  SELECT * INTO p FROM onceward.replay AS t WHERE t.op_id = its_id;
  SELECT * INTO a FROM onceward.attention AS t WHERE t.op_id = its_id;
  day := coalesce(its_day, a.expires_on, (SELECT t.expires_on FROM onceward.op AS t WHERE t.op_id = its_id LIMIT 1));
  SELECT * INTO o FROM onceward.op AS t WHERE t.op_id = its_id AND t.expires_on = day;
  SELECT * INTO k FROM onceward.key AS t WHERE t.key_hash = coalesce(its_hash, o.key_hash, a.key_hash);
  SELECT * INTO s FROM onceward.state_of(its_id, day);
  IF o.op_id IS NULL AND a.op_id IS NULL AND s.kind IS NULL AND k.op_id IS DISTINCT FROM its_id THEN
    RETURN;
  END IF;
  record := json_build_object(
    'state', CASE WHEN s.kind IS NULL THEN 'completed' ELSE onceward.state_word(s.kind, s.lease_left) END,
    'operation', onceward.readable(coalesce(o.operation, a.operation)),
    'account', onceward.named(coalesce(o.account, a.account), reveal),
    'key', onceward.named(coalesce(o.key, a.key), reveal),
    'key_hash', onceward.logged(coalesce(its_hash, o.key_hash, a.key_hash)),
    'generation', s.generation,
    'slot', CASE WHEN s.kind IN (2, 4) THEN s.slot END,
    'created_at', onceward.utc(coalesce(o.created_at, a.created_at, onceward.op_id_time(its_id))),
    'lease_until', CASE WHEN s.kind IN (0, 1) THEN onceward.utc(now() + s.lease_left * interval '1 millisecond') END,
    'source', CASE WHEN s.kind > 0 THEN onceward.source_word(s.source) END,
    'status', s.status,
    'receipt', onceward.readable(s.receipt),
    'response_kept', s.kind IS NOT DISTINCT FROM 2 AND s.kept IS TRUE AND coalesce(s.expires_at, k.expires_at, 'infinity') > now(),
    'body_bytes', octet_length(s.body),
    'replays', coalesce(p.n, 0),
    'last_replayed_at', onceward.utc(p.last_at),
    'cause', onceward.readable(a.cause),
    'listed_at', onceward.utc(a.listed_at),
    'lookups', a.tries,
    'next_lookup_at', onceward.utc(a.due_at),
    'key_state', CASE WHEN k.op_id = its_id THEN 'held' WHEN k.op_id IS NOT NULL THEN 'held by a newer record'
                      WHEN coalesce(its_hash, o.key_hash, a.key_hash) IS NOT NULL THEN 'free' END,
    'expires_at', onceward.utc(coalesce(s.expires_at, CASE WHEN k.op_id = its_id THEN k.expires_at END)),
    'keep_until', CASE WHEN k.op_id = its_id THEN onceward.utc(k.keep_until) END,
    'digest', CASE WHEN k.op_id = its_id THEN encode(k.digest, 'hex') END,
    'raw_digest', CASE WHEN k.op_id = its_id THEN encode(k.raw_digest, 'hex') END,
    'digest_key', CASE WHEN k.op_id = its_id THEN k.digest_key END,
    'rules', CASE WHEN k.op_id = its_id THEN k.rules_id::text END,
    'settings', encode(substring(o.settings FOR 16), 'hex'),
    'gateway', onceward.readable(o.gateway),
    'history', onceward.history_of(its_id, day));
  RETURN NEXT;
END $$;

CREATE FUNCTION onceward.find_record(its_hash uuid) RETURNS TABLE (op_id bigint, day date) LANGUAGE plpgsql STABLE
SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY SELECT k.op_id, (k.expires_at AT TIME ZONE 'UTC')::date FROM onceward.key AS k WHERE k.key_hash = its_hash;
END $$;

-- What resolving wants to know first. No row: there is no such record, or only its key is left.
CREATE FUNCTION onceward.operation_of(its_id bigint, its_day date) RETURNS SETOF bytea LANGUAGE sql STABLE AS $$
  SELECT f.operation FROM onceward.facts_of(its_id, its_day) AS f
$$;

-- resolve() with the times that the record was given when it was reserved. receipt_unique: one that
-- another key has already is the sign that something was done twice.
CREATE FUNCTION onceward.resolve_record(its_id bigint, its_day date, expected smallint, kind smallint, status smallint,
                                        headers bytea, body bytea, receipt bytea, evidence text, who text, source smallint,
                                        writer bigint, receipt_unique boolean, amends smallint DEFAULT NULL)
RETURNS smallint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  f      record;
  k      onceward.key;
  began  timestamptz;
  keep   bigint;
  result smallint;
BEGIN
  SELECT * INTO f FROM onceward.facts_of(its_id, its_day);
  SELECT * INTO k FROM onceward.key AS t WHERE t.key_hash = f.key_hash AND t.op_id = its_id;
  began := coalesce((SELECT o.created_at FROM onceward.op AS o WHERE o.op_id = its_id AND o.expires_on = its_day),
                    onceward.op_id_time(its_id));
  keep := CASE WHEN isfinite(k.keep_until) THEN (extract(epoch FROM k.keep_until - began) * 1000)::bigint
               WHEN k.keep_until IS NULL THEN 2592000000 ELSE 3153600000000 END;
  result := onceward.resolve(its_id, its_day, expected, kind, status, headers, body, receipt, evidence, who, source,
    CASE WHEN isfinite(k.expires_at) THEN (extract(epoch FROM k.expires_at - began) * 1000)::bigint ELSE 86400000 END,
    keep, writer, amends);
  IF result = 1 AND kind = 2 AND receipt_unique AND receipt IS NOT NULL THEN
    PERFORM onceward.add_receipts(ARRAY[its_id], ARRAY[f.account], ARRAY[f.operation], ARRAY[receipt], ARRAY[keep]);
  END IF;
  RETURN result;
END $$;

-- Operations as the ledger knows them, what is stopped, and what waits. The row without a name is what concerns all.
CREATE FUNCTION onceward.list_operations() RETURNS TABLE (operation text, identity text, record json)
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY
  WITH RECURSIVE listed AS (
    (SELECT a.operation FROM onceward.attention AS a ORDER BY a.operation LIMIT 1)
    UNION ALL
    SELECT (SELECT a.operation FROM onceward.attention AS a WHERE a.operation > listed.operation ORDER BY a.operation LIMIT 1)
    FROM listed WHERE listed.operation IS NOT NULL),
  name AS (
    SELECT i.operation FROM onceward.identity AS i
    UNION SELECT onceward.readable(l.operation) FROM listed AS l WHERE l.operation IS NOT NULL
    UNION SELECT s.operation FROM onceward.stop AS s WHERE s.ended_at IS NULL)
  SELECT n.operation, encode(i.identity, 'hex'), json_build_object(
    'since', onceward.utc(i.since),
    'stopped', (SELECT string_agg(DISTINCT w.word, ' ' ORDER BY w.word)
                FROM (SELECT s.reason || CASE WHEN s.account IS NULL THEN '' ELSE ' (accounts)' END AS word FROM onceward.stop AS s
                      WHERE s.ended_at IS NULL AND s.op_id IS NULL AND (s.operation IS NULL OR s.operation = n.operation)) AS w),
    'unknown', (SELECT count(*) FROM (SELECT FROM onceward.attention AS a WHERE a.operation = convert_to(n.operation, 'UTF8') LIMIT 100000) AS few),
    'oldest_unknown_seconds', (SELECT extract(epoch FROM now() - a.created_at)::bigint FROM onceward.attention AS a
                               WHERE a.operation = convert_to(n.operation, 'UTF8') ORDER BY a.created_at LIMIT 1),
    'stops', (SELECT coalesce(json_agg(json_build_object(
                       'reason', s.reason, 'scope', CASE WHEN s.op_id IS NOT NULL THEN 'one record' WHEN s.account IS NOT NULL THEN 'one account'
                                                                  WHEN s.operation IS NOT NULL THEN 'the operation' ELSE 'everything' END,
                       'account', onceward.named(s.account, false), 'detail', s.detail,
                       'raised_by', s.raised_by, 'raised_at', onceward.utc(s.raised_at)) ORDER BY s.id), '[]'::json)
              FROM (SELECT * FROM onceward.stop AS t WHERE t.ended_at IS NULL AND t.operation IS NOT DISTINCT FROM n.operation
                    ORDER BY t.id LIMIT 100) AS s))
  FROM name AS n LEFT JOIN onceward.identity AS i ON i.operation = n.operation
  ORDER BY n.operation NULLS FIRST;
END $$;

-- By an operator: stops an operation, for all or for one account. Without the escalation of raise_stop, which
-- is for signs of harm. False: it is stopped so already.
CREATE FUNCTION onceward.stop_operation(its_operation text, its_account bytea, who text, why text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('onceward stops'));
  IF EXISTS (SELECT FROM onceward.stop AS s
             WHERE s.ended_at IS NULL AND s.reason = 'operator' AND s.operation IS NOT DISTINCT FROM its_operation
               AND s.account IS NOT DISTINCT FROM its_account) THEN
    RETURN false;
  END IF;
  INSERT INTO onceward.stop (operation, account, reason, detail, raised_by) VALUES (its_operation, its_account, 'operator', why, who);
  PERFORM onceward.audit_add(who, 'stop', coalesce(its_operation, 'everything'), why,
                             coalesce('account ' || onceward.named(its_account, false), 'all accounts'));
  RETURN true;
END $$;

-- True: the operation is from now on what `text` says; false: it was.
CREATE FUNCTION onceward.adopt_operation(its_operation text, its_identity bytea, its_text text, who text, why text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  old text := (SELECT i.text FROM onceward.identity AS i WHERE i.operation = its_operation);
BEGIN
  INSERT INTO onceward.identity AS i (operation, identity, text) VALUES (its_operation, its_identity, its_text)
  ON CONFLICT (operation) DO UPDATE SET identity = EXCLUDED.identity, text = EXCLUDED.text, since = now()
  WHERE i.identity <> EXCLUDED.identity;
  IF FOUND THEN
    PERFORM onceward.audit_add(who, 'operations adopt', its_operation, why,
                               'was: ' || coalesce(old, 'nothing') || E'\nis: ' || its_text);
    RETURN true;
  END IF;
  RETURN false;
END $$;

-- What a line of a provider's report is to the ledger; its receipt is in its normal form, as those of the
-- ledger are. `apply`: what is unknown is completed.
CREATE FUNCTION onceward.reconcile_line(its_operation bytea, apply boolean, evidence text, who text, writer bigint, its_id bigint,
                                        its_day date, status smallint, headers bytea, body bytea, receipt bytea,
                                        receipt_unique boolean)
RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  s     record;
  state text;
  whose bytea;
BEGIN
  SELECT f.operation INTO whose FROM onceward.facts_of(its_id, its_day) AS f;
  SELECT * INTO s FROM onceward.state_of(its_id, its_day);
  IF s.kind IS NULL THEN
    RETURN CASE WHEN its_id IS NULL THEN 'provider_only' ELSE 'not_kept' END;
  END IF;
  IF whose <> its_operation THEN
    RETURN 'other_operation';
  END IF;
  state := onceward.state_word(s.kind, s.lease_left);
  IF state = 'completed' THEN
    RETURN CASE WHEN s.receipt <> reconcile_line.receipt THEN 'other_receipt'
                WHEN s.status <> reconcile_line.status THEN 'other_status' ELSE 'same' END;
  END IF;
  IF state <> 'unknown' OR NOT apply THEN
    RETURN state;
  END IF;
  RETURN CASE onceward.resolve_record(its_id, its_day, NULL, 2::smallint, reconcile_line.status, reconcile_line.headers,
                                      reconcile_line.body, reconcile_line.receipt, evidence, who, 3::smallint, writer,
                                      receipt_unique)
         WHEN 1 THEN 'unknown' WHEN 3 THEN 'in_flight' WHEN 5 THEN 'in_flight' ELSE 'changed' END;
END $$;

-- Some lines of a report, under one commit. Their attention rows are locked before anything else is, in
-- the order in which everybody takes them. A line names its record by id and day or by its key's hash.
CREATE FUNCTION onceward.reconcile_lines(its_operation bytea, apply boolean, evidence text, who text, writer bigint, ids bigint[],
                                         days date[], hashes uuid[], statuses smallint[], headers bytea[], bodies bytea[], receipts bytea[],
                                         receipt_unique boolean)
RETURNS TABLE (place bigint, op_id bigint, day date, verdict text) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  r record;
BEGIN
  IF apply THEN
    PERFORM FROM onceward.attention AS a
    WHERE a.op_id = ANY (ids || ARRAY(SELECT f.op_id FROM unnest(hashes) AS h(hash) CROSS JOIN LATERAL onceward.find_record(h.hash) AS f))
    ORDER BY a.op_id FOR UPDATE;
  END IF;
  FOR r IN
    SELECT t.place, coalesce(t.id, f.op_id) AS id, coalesce(t.day, f.day) AS day, t.status, t.headers, t.body, t.receipt
    FROM unnest(ids, days, hashes, statuses, headers, bodies, receipts) WITH ORDINALITY
      AS t(id, day, hash, status, headers, body, receipt, place)
    LEFT JOIN LATERAL onceward.find_record(t.hash) AS f ON t.id IS NULL
    ORDER BY 2, 1
  LOOP
    place := r.place; op_id := r.id; day := r.day;
    verdict := onceward.reconcile_line(its_operation, apply, evidence, who, writer, r.id, r.day, r.status, r.headers, r.body, r.receipt,
                                       receipt_unique);
    RETURN NEXT;
  END LOOP;
END $$;

-- Until when the last attempt at a record that is unknown now may have been running, as far as the ledger
-- knows: its lease's end, or its own.
CREATE FUNCTION onceward.may_have_run_until(its_id bigint, its_day date, ended_at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
  RETURN least(ended_at, coalesce(
    (SELECT l.lease_until FROM onceward.event_late AS l
     WHERE l.op_id = its_id AND l.slot > 0 AND l.kind = 1 ORDER BY l.slot DESC LIMIT 1),
    (SELECT o.lease_until FROM onceward.op AS o WHERE o.op_id = its_id AND o.expires_on = its_day)));
END $$;

-- Records that a complete report does not name: not executed, where no attempt at them may have been
-- running when the report was made. The arrays arrive sorted by op_id.
CREATE FUNCTION onceward.reconcile_absent(apply boolean, as_of timestamptz, evidence text, who text, writer bigint, ids bigint[], days date[])
RETURNS TABLE (op_id bigint, day date, verdict text) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  r record;
  s record;
BEGIN
  IF apply THEN
    PERFORM FROM onceward.attention AS a WHERE a.op_id = ANY (ids) ORDER BY a.op_id FOR UPDATE;
  END IF;
  FOR r IN SELECT t.id, t.day, a.created_at, a.tried_at FROM unnest(ids, days) AS t(id, day) LEFT JOIN onceward.attention AS a ON a.op_id = t.id ORDER BY t.id LOOP
    op_id := r.id; day := r.day;
    SELECT * INTO s FROM onceward.state_of(r.id, r.day);
    IF r.created_at IS NULL OR onceward.state_word(s.kind, s.lease_left) <> 'unknown' THEN
      verdict := 'changed';
    ELSIF greatest(r.created_at, r.tried_at,
                   onceward.may_have_run_until(r.id, r.day, CASE WHEN s.kind = 3 THEN s.at END)) >= as_of THEN
      verdict := 'too_new';
    ELSIF NOT apply THEN
      verdict := 'absent';
    ELSE
      verdict := CASE onceward.resolve_record(r.id, r.day, NULL, 4::smallint, NULL, NULL, NULL, NULL, evidence, who, 3::smallint, writer, false)
                 WHEN 1 THEN 'absent' ELSE 'changed' END;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

INSERT INTO onceward.schema_version (version, oldest_program) VALUES (4, 2);
