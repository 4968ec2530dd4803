-- The ledger, version 2: what becomes of a record after its first attempt has ended without a known
-- result. Slots from 2 on (resends, late answers, lookups, resolutions), evidence below 0, stops.
--
-- The highest positive slot of a record says what it is:
--   1 claim      a resend is under way, until lease_until; after that nobody knows
--   2 completed  3 unknown  4 released
-- Slot 1 is the end of the first attempt, in `event`; a completed or released one is final. Nothing
-- stands above it but where it is unknown, or its day is gone. Who wants the next slot takes the
-- attention row first, then inserts; the primary key decides where the first attempt itself, which
-- takes no such row, is faster.

ALTER TABLE onceward.event_late
  ADD COLUMN generation smallint    NOT NULL DEFAULT 0,           -- the attempt that it is about; 0: none
  ADD COLUMN source     smallint    NOT NULL DEFAULT 0,           -- 0 that attempt, 1 a lookup, 2 an operator, 3 a provider's report, 4 the deadline
  ADD COLUMN keep_until timestamptz NOT NULL DEFAULT 'infinity',  -- of the row; expires_at: of its response
  ADD COLUMN key_was    text;                                     -- released by others than the attempt: the key row that went

-- state: 1 stale (its lease ran out, no end is written), 2 a resend is under way, 3 unknown
ALTER TABLE onceward.attention
  ADD COLUMN generation   smallint NOT NULL DEFAULT 1,
  ADD COLUMN tried_at     timestamptz,                            -- when the last resend began; NULL: there was none
  ADD COLUMN claim_until  timestamptz,                            -- of the resend under way
  ADD COLUMN due_at       timestamptz,                            -- when it is looked up next; NULL: at once
  ADD COLUMN not_found_at timestamptz,                            -- since when lookups find nothing, after the lease
  ADD COLUMN alerted      boolean  NOT NULL DEFAULT false;

-- A stop that concerns one record alone: its stored response is not what was stored.
ALTER TABLE onceward.stop ADD COLUMN op_id bigint;

CREATE INDEX attention_claim ON onceward.attention (claim_until) WHERE state = 2;

-- SHA-256 over what a row says and for whom; the same bytes as the gateway's (src/ledger_row.c).
CREATE FUNCTION onceward.row_hash(account bytea, operation bytea, key bytea, op_id bigint, slot smallint,
                                  status smallint, headers bytea, body bytea)
RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT sha256(int8send(octet_length(account)::bigint) || account
             || int8send(octet_length(operation)::bigint) || operation
             || int8send(octet_length(key)::bigint) || key
             || int8send(op_id) || int2send(slot) || int2send(status)
             || CASE WHEN body IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea END
             || int8send(coalesce(octet_length(headers), 0)::bigint) || coalesce(headers, ''::bytea)
             || int8send(coalesce(octet_length(body), 0)::bigint) || coalesce(body, ''::bytea))
$$;

CREATE FUNCTION onceward.audit_add(who text, action text, about text, reason text, detail text)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO onceward.audit (who, action, about, reason, detail) VALUES (who, action, about, reason, detail)
$$;

-- What a record is now; no row: nothing is known of it. kind 0: no end is written. lease_left, in
-- milliseconds by this clock, is that of the first attempt (kind 0) or of the claim (kind 1).
CREATE FUNCTION onceward.state_of(op_id bigint, day date)
RETURNS TABLE (slot smallint, kind smallint, generation smallint, source smallint, writer bigint,
               lease_left bigint, status smallint, headers bytea, body bytea, hash bytea, receipt bytea,
               at timestamptz, expires_at timestamptz, kept boolean)
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
  first  onceward.event;
  late   onceward.event_late;
  claims smallint;
BEGIN
  SELECT * INTO first FROM onceward.event AS e
  WHERE e.op_id = state_of.op_id AND e.slot = 1 AND e.expires_on = state_of.day;
  IF first.kind IN (2, 4) THEN
    RETURN QUERY SELECT 1::smallint, first.kind, 1::smallint, 0::smallint, first.writer, NULL::bigint, first.status,
      first.headers, first.body, first.hash, first.receipt, first.at, NULL::timestamptz, first.body IS NOT NULL;
    RETURN;
  END IF;
  SELECT * INTO late FROM onceward.event_late AS l
  WHERE l.op_id = state_of.op_id AND l.slot > 0 ORDER BY l.slot DESC LIMIT 1;
  IF late.slot IS NOT NULL THEN
    SELECT count(*) + 1 INTO claims FROM onceward.event_late AS l
    WHERE l.op_id = state_of.op_id AND l.slot > 0 AND l.kind = 1;
    RETURN QUERY SELECT late.slot, late.kind, claims, late.source, late.writer,
      (extract(epoch FROM late.lease_until - now()) * 1000)::bigint, late.status, late.headers, late.body, late.hash,
      late.receipt, late.at, late.expires_at, late.body IS NOT NULL;
    RETURN;
  END IF;
  IF first.kind IS NOT NULL THEN
    RETURN QUERY SELECT 1::smallint, first.kind, 1::smallint, 0::smallint, first.writer, NULL::bigint, NULL::smallint,
      NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, first.at, NULL::timestamptz, false;
    RETURN;
  END IF;
  RETURN QUERY SELECT 0::smallint, 0::smallint, 1::smallint, 0::smallint, 0::bigint,
    (extract(epoch FROM op.lease_until - now()) * 1000)::bigint, NULL::smallint, NULL::bytea, NULL::bytea, NULL::bytea,
    NULL::bytea, op.created_at, NULL::timestamptz, false
  FROM onceward.op AS op WHERE op.op_id = state_of.op_id AND op.expires_on = state_of.day;
  IF NOT FOUND THEN -- its day is gone; on the list it still is what it was
    RETURN QUERY SELECT a.slot, CASE WHEN a.slot = 0 THEN 0 ELSE 3 END::smallint, a.generation, 0::smallint, 0::bigint, NULL::bigint,
      NULL::smallint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, a.listed_at, NULL::timestamptz, false
    FROM onceward.attention AS a WHERE a.op_id = state_of.op_id;
  END IF;
END $$;

-- Something has happened that must not: no forward any more until a person has looked. An account of an
-- operation first; the third account makes it the whole operation, but where an operator stops them, who
-- can say what he means. operation NULL: everything.
CREATE FUNCTION onceward.raise_stop(operation text, account bytea, reason text, detail text, raised_by text,
                                    op_id bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('onceward stops'));
  IF EXISTS (SELECT FROM onceward.stop AS s
             WHERE s.ended_at IS NULL AND s.reason = raise_stop.reason
               AND s.operation IS NOT DISTINCT FROM raise_stop.operation
               AND s.op_id IS NOT DISTINCT FROM raise_stop.op_id
               AND (s.account IS NULL OR s.account = raise_stop.account)) THEN
    RETURN;
  END IF;
  INSERT INTO onceward.stop (operation, account, reason, detail, raised_by, op_id)
  VALUES (raise_stop.operation, raise_stop.account, raise_stop.reason, raise_stop.detail, raise_stop.raised_by, raise_stop.op_id);
  IF raise_stop.account IS NOT NULL AND raise_stop.op_id IS NULL AND raise_stop.reason <> 'operator' AND
     (SELECT count(*) FROM onceward.stop AS s
      WHERE s.ended_at IS NULL AND s.op_id IS NULL AND s.reason = raise_stop.reason
        AND s.operation = raise_stop.operation) >= 3 THEN
    INSERT INTO onceward.stop (operation, reason, detail, raised_by)
    VALUES (raise_stop.operation, raise_stop.reason, 'three accounts were stopped for the same reason', raise_stop.raised_by);
  END IF;
END $$;

-- Ends what is open for exactly that operation and account, and says how many; account NULL: all of the
-- operation; operation NULL: those that concern everything.
CREATE FUNCTION onceward.end_stops(operation text, account bytea, who text, why text)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  n integer;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('onceward stops'));
  UPDATE onceward.stop AS s SET ended_at = clock_timestamp(), ended_by = who, end_reason = why
  WHERE s.ended_at IS NULL AND s.operation IS NOT DISTINCT FROM end_stops.operation
    AND (end_stops.account IS NULL OR s.account = end_stops.account);
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n > 0 THEN
    PERFORM onceward.audit_add(who, 'resume', coalesce(end_stops.operation, 'everything'), why, n || ' stops ended');
  END IF;
  RETURN n;
END $$;

-- Receipts that belong to one key alone. One that another key has already is the sign that something
-- was done twice. The arrays arrive sorted by op_id; the rows are taken in the order of their hashes.
CREATE FUNCTION onceward.add_receipts(op_ids bigint[], accounts bytea[], operations bytea[], receipts bytea[],
                                      tombstones_ms bigint[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  item record;
BEGIN
  FOR item IN
    SELECT t.*, encode(substr(sha256(int8send(octet_length(t.account)::bigint) || t.account
                                  || int8send(octet_length(t.operation)::bigint) || t.operation || t.receipt), 1, 16), 'hex')::uuid AS hash
    FROM unnest(op_ids, accounts, operations, receipts, tombstones_ms) AS t(op_id, account, operation, receipt, tombstone_ms)
    ORDER BY hash, t.op_id
  LOOP
    INSERT INTO onceward.receipt AS r (receipt_hash, op_id, keep_until)
    VALUES (item.hash, item.op_id, now() + item.tombstone_ms * interval '1 millisecond')
    ON CONFLICT (receipt_hash) DO UPDATE SET keep_until = greatest(r.keep_until, EXCLUDED.keep_until)
    WHERE r.op_id = EXCLUDED.op_id;
    IF NOT FOUND THEN
      PERFORM onceward.raise_stop(convert_from(item.operation, 'SQL_ASCII'), item.account, 'duplicate_effect',
        'one receipt came under two keys; the second record is ' || item.op_id, 'gateway');
    END IF;
  END LOOP;
END $$;

-- When an op_id was made, by the gateway that made it, and that is when its key was reserved.
CREATE FUNCTION onceward.op_id_time(id bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT to_timestamp(((id >> 22) + 1577836800000) / 1000.0)
$$;

-- The attention row of a record, locked; made where there is none.
CREATE FUNCTION onceward.attention_lock(op_id bigint, day date, key_hash uuid, account bytea, operation bytea, key bytea)
RETURNS void LANGUAGE sql SET enable_seqscan = off AS $$
  INSERT INTO onceward.attention AS a (created_at, op_id, expires_on, state, slot, key_hash, account, operation, key, cause)
  VALUES (onceward.op_id_time(attention_lock.op_id), attention_lock.op_id, attention_lock.day,
          1, 0, attention_lock.key_hash, attention_lock.account, attention_lock.operation, attention_lock.key, 'lease ran out')
  ON CONFLICT (op_id) DO UPDATE SET state = a.state
$$;

-- Off the list again, where the record turns out to be in flight, or nothing but the list knows it.
CREATE FUNCTION onceward.attention_unlock(op_id bigint, kind smallint, lease_left bigint) RETURNS void LANGUAGE sql AS $$
  DELETE FROM onceward.attention AS a
  WHERE a.op_id = attention_unlock.op_id AND a.state = 1 AND a.slot = 0
    AND (kind IS NULL OR (kind = 0 AND (lease_left > 0 OR lease_left IS NULL)))
$$;

-- The end of the first attempt as nobody knows it. False: the attempt itself was faster. Where its day
-- is gone the slot counts as taken.
CREATE FUNCTION onceward.first_unknown(op_id bigint, day date, writer bigint, note bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, note)
  VALUES (first_unknown.op_id, first_unknown.writer, first_unknown.day, 1, 3, first_unknown.note)
  ON CONFLICT (op_id, slot, expires_on) DO NOTHING;
  RETURN FOUND;
EXCEPTION WHEN check_violation THEN
  RETURN true;
END $$;

-- Slot `slot` of a record, by whoever holds its attention row. False: somebody was faster.
CREATE FUNCTION onceward.late_add(l onceward.event_late) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onceward.event_late VALUES (l.*) ON CONFLICT (op_id, slot) DO NOTHING;
  RETURN FOUND;
END $$;

-- Makes a record whose last attempt's lease has run out what everybody takes it for: unknown; on the
-- list as well. The slot that holds it then; NULL: it is not so, or somebody was faster.
CREATE FUNCTION onceward.settle_unknown(op_id bigint, day date, writer bigint) RETURNS smallint
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  s    record;
  l    onceward.event_late;
  done boolean;
BEGIN
  SELECT * INTO s FROM onceward.state_of(settle_unknown.op_id, settle_unknown.day);
  IF s.kind = 3 THEN
    RETURN s.slot;
  END IF;
  IF s.kind IS NULL OR s.kind NOT IN (0, 1) OR s.lease_left > 0 OR s.lease_left IS NULL THEN -- NULL: its day is gone
    RETURN NULL;
  END IF;
  l.slot := s.slot + 1;
  IF s.kind = 0 THEN
    done := onceward.first_unknown(settle_unknown.op_id, settle_unknown.day, settle_unknown.writer, 'lease ran out');
  ELSE
    l.op_id := settle_unknown.op_id; l.at := clock_timestamp(); l.writer := settle_unknown.writer;
    l.expires_at := 'infinity'; l.keep_until := 'infinity'; l.kind := 3; l.generation := s.generation; l.source := 0;
    l.note := 'lease ran out';
    done := onceward.late_add(l);
  END IF;
  IF NOT done THEN
    RETURN NULL;
  END IF;
  UPDATE onceward.attention AS a SET state = 3, slot = l.slot, claim_until = NULL, cause = 'lease ran out'
  WHERE a.op_id = settle_unknown.op_id;
  IF s.kind = 1 AND onceward.answer_before(settle_unknown.op_id, l.slot) THEN
    RETURN NULL;
  END IF;
  RETURN l.slot;
END $$;

-- Resends whose lease ran out are unknown again. How many of each operation.
CREATE FUNCTION onceward.sweep_claims(writer bigint) RETURNS TABLE (operation bytea, n bigint)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY
  WITH late AS MATERIALIZED (
    SELECT a.op_id, a.expires_on, a.operation FROM onceward.attention AS a
    WHERE a.state = 2 AND a.claim_until < now() ORDER BY a.op_id LIMIT 1000 FOR UPDATE SKIP LOCKED),
  ended AS MATERIALIZED (
    SELECT late.operation, onceward.settle_unknown(late.op_id, late.expires_on, sweep_claims.writer) AS slot FROM late)
  SELECT ended.operation, count(*) FROM ended WHERE ended.slot IS NOT NULL GROUP BY ended.operation;
END $$;

-- Who waits for a record's row waits on a connection that many share: not for long.
--
-- The right to send the request once more, as generation `generation` (2 or more). 1: it is this
-- writer's; 0: somebody was faster, or the result is not unknown. Asked again it answers the same.
CREATE FUNCTION onceward.claim(op_id bigint, day date, generation smallint, lease_ms bigint, writer bigint,
                               key_hash uuid, account bytea, operation bytea, key bytea)
RETURNS smallint LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  s    record;
  l    onceward.event_late;
  base smallint;
BEGIN
  PERFORM onceward.attention_lock(claim.op_id, claim.day, claim.key_hash, claim.account, claim.operation, claim.key);
  SELECT * INTO s FROM onceward.state_of(claim.op_id, claim.day);
  IF s.kind IN (2, 4) THEN
    DELETE FROM onceward.attention AS a WHERE a.op_id = claim.op_id;
    RETURN 0;
  END IF;
  -- Its own, after a lost reply; the writer is this one request.
  IF s.kind = 1 AND s.generation = claim.generation AND s.writer = claim.writer AND s.lease_left > 0 THEN
    RETURN 1;
  END IF;
  IF s.generation = claim.generation - 1 THEN
    base := onceward.settle_unknown(claim.op_id, claim.day, claim.writer);
  END IF;
  IF base IS NULL THEN -- somebody was faster: an answer perhaps, and then nobody waits for anything
    SELECT * INTO s FROM onceward.state_of(claim.op_id, claim.day);
    DELETE FROM onceward.attention AS a WHERE a.op_id = claim.op_id AND s.kind IN (2, 4);
    PERFORM onceward.attention_unlock(claim.op_id, s.kind, s.lease_left);
    RETURN 0;
  END IF;
  l.op_id := claim.op_id; l.slot := base + 1; l.at := clock_timestamp(); l.writer := claim.writer; l.kind := 1;
  l.expires_at := 'infinity'; l.keep_until := 'infinity'; l.generation := claim.generation; l.source := 0;
  l.lease_until := clock_timestamp() + claim.lease_ms * interval '1 millisecond';
  IF NOT onceward.late_add(l) THEN
    RETURN 0;
  END IF;
  UPDATE onceward.attention AS a
  SET state = 2, slot = l.slot, generation = l.generation, tried_at = l.at, claim_until = l.lease_until,
      not_found_at = NULL, owner = NULL -- a lookup under way speaks of what was before
  WHERE a.op_id = claim.op_id;
  RETURN 1;
END $$;

-- Keeps what came too late to decide, in the next slot below 0; once.
CREATE FUNCTION onceward.keep_evidence(e onceward.event_late) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM onceward.event_late AS l
             WHERE l.op_id = e.op_id AND l.slot < 0 AND l.writer = e.writer AND l.generation = e.generation
               AND l.kind = e.kind AND l.source = e.source AND l.receipt IS NOT DISTINCT FROM e.receipt) THEN
    RETURN;
  END IF;
  e.slot := coalesce((SELECT min(l.slot) FROM onceward.event_late AS l WHERE l.op_id = e.op_id AND l.slot < 0), 0) - 1;
  IF e.slot < -64 THEN -- nobody needs more of it
    RETURN;
  END IF;
  PERFORM onceward.late_add(e);
END $$;

-- The first attempt's own end, in its own slot. False: somebody was faster. Its day is there: whoever has
-- seen op holds that up, and event goes behind it.
CREATE FUNCTION onceward.conclude_first(l onceward.event_late, day date, account bytea, operation bytea, key bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onceward.event (op_id, at, writer, expires_on, slot, kind, status, headers, body, hash, receipt, note)
  VALUES (l.op_id, l.at, l.writer, day, 1, l.kind, l.status, l.headers, l.body,
          CASE WHEN l.kind = 2 THEN onceward.row_hash(account, operation, key, l.op_id, 1::smallint, l.status, l.headers, l.body) END,
          l.receipt, l.note)
  ON CONFLICT (op_id, slot, expires_on) DO NOTHING;
  RETURN FOUND;
END $$;

-- What follows from an end that was written: the list, the key, how long the rows stay.
CREATE FUNCTION onceward.concluded(l onceward.event_late, key_hash uuid, account bytea, operation bytea,
                                   receipt_unique boolean, tombstone_ms bigint)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  IF l.kind = 3 THEN
    UPDATE onceward.attention AS a
    SET state = 3, slot = greatest(l.slot, 1::smallint), claim_until = NULL, cause = coalesce(l.note, ''::bytea)
    WHERE a.op_id = l.op_id;
    RETURN;
  END IF;
  DELETE FROM onceward.attention AS a WHERE a.op_id = l.op_id;
  UPDATE onceward.event_late AS e SET keep_until = l.keep_until, expires_at = least(e.expires_at, l.expires_at)
  WHERE e.op_id = l.op_id AND e.keep_until = 'infinity';
  IF l.kind = 2 AND l.receipt IS NOT NULL AND receipt_unique THEN
    PERFORM onceward.add_receipts(ARRAY[l.op_id], ARRAY[account], ARRAY[operation], ARRAY[l.receipt], ARRAY[tombstone_ms]);
  END IF;
  IF l.kind = 2 AND l.source < 2 AND EXISTS (
       SELECT FROM onceward.event_late AS e
       WHERE e.op_id = l.op_id AND e.slot < 0 AND e.kind = 2 AND e.receipt <> l.receipt) THEN
    PERFORM onceward.raise_stop(convert_from(operation, 'SQL_ASCII'), account, 'duplicate_effect',
      'two different receipts came for record ' || l.op_id, 'gateway');
  END IF;
  IF l.kind = 4 THEN
    DELETE FROM onceward.key AS k WHERE k.key_hash = concluded.key_hash AND k.op_id = l.op_id;
  END IF;
END $$;

-- An answer to an earlier attempt, that came while a resend was under way, counts when that has ended without
-- one, in slot `slot`: it goes into the next. False: there is none.
CREATE FUNCTION onceward.answer_before(op_id bigint, slot smallint) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  l onceward.event_late;
  a onceward.attention;
BEGIN
  SELECT * INTO l FROM onceward.event_late AS e
  WHERE e.op_id = answer_before.op_id AND e.slot < 0 AND e.kind = 2 AND e.source = 0 ORDER BY e.slot DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  SELECT * INTO a FROM onceward.attention AS t WHERE t.op_id = answer_before.op_id;
  l.slot := answer_before.slot + 1;
  l.expires_at := clock_timestamp() + (l.expires_at - l.at);
  l.keep_until := clock_timestamp() + (l.keep_until - l.at);
  l.hash := onceward.row_hash(a.account, a.operation, a.key, l.op_id, l.slot, l.status, l.headers, l.body);
  IF NOT onceward.late_add(l) THEN
    RETURN false;
  END IF;
  PERFORM onceward.concluded(l, a.key_hash, a.account, a.operation, false, 0);
  RETURN true;
END $$;

-- An end that comes after the record has one.
CREATE FUNCTION onceward.conclude_after(s_kind smallint, own boolean, s_receipt bytea, l onceward.event_late,
                                        account bytea, operation bytea, quiet boolean)
RETURNS smallint LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  DELETE FROM onceward.attention AS a WHERE a.op_id = l.op_id;
  IF own AND s_kind = l.kind THEN
    RETURN 1;
  END IF;
  IF l.kind <> 2 THEN
    RETURN s_kind;
  END IF;
  PERFORM onceward.keep_evidence(l);
  IF s_kind = 2 AND s_receipt <> l.receipt THEN
    PERFORM onceward.raise_stop(convert_from(operation, 'SQL_ASCII'), account, 'duplicate_effect',
      'two different receipts came for record ' || l.op_id, 'gateway');
  ELSIF s_kind = 4 AND NOT quiet THEN
    PERFORM onceward.raise_stop(convert_from(operation, 'SQL_ASCII'), account, 'late_effect',
      'an effect came to light for record ' || l.op_id || ', which had been released', 'gateway');
  END IF;
  RETURN s_kind;
END $$;

-- Writes how something ended that is not the ordinary end of a first attempt: a resend, an answer that
-- came late, what a lookup found, what an operator knows. What comes back:
--   1 it is what the record says now (or said already, by the same writer about the same attempt)
--   2 the record was completed before: kept as evidence; another receipt raises duplicate_effect
--   3 a resend is under way: kept as evidence. Or there was one, of which a release says nothing
--   4 the record was released before: kept as evidence; an effect raises late_effect, unless `quiet`
--   5 the attempt may still be running: nothing was done
--   6 there is no such record
CREATE FUNCTION onceward.conclude(op_id bigint, day date, key_hash uuid, account bytea, operation bytea, key bytea,
                                  generation smallint, source smallint, kind smallint, status smallint, headers bytea,
                                  body bytea, receipt bytea, note bytea, retention_ms bigint, tombstone_ms bigint,
                                  writer bigint, receipt_unique boolean DEFAULT false, quiet boolean DEFAULT false)
RETURNS smallint LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  s    record;
  l    onceward.event_late;
  own  boolean;
  base smallint;
BEGIN
  PERFORM onceward.attention_lock(conclude.op_id, conclude.day, conclude.key_hash, conclude.account, conclude.operation, conclude.key);
  l.op_id := conclude.op_id; l.at := clock_timestamp(); l.writer := conclude.writer; l.kind := conclude.kind;
  l.generation := conclude.generation; l.source := conclude.source; l.status := conclude.status;
  l.headers := conclude.headers; l.body := conclude.body; l.receipt := conclude.receipt; l.note := conclude.note;
  l.expires_at := clock_timestamp() + conclude.retention_ms * interval '1 millisecond';
  l.keep_until := clock_timestamp() + conclude.tombstone_ms * interval '1 millisecond';
  FOR try IN 1..8 LOOP
    SELECT * INTO s FROM onceward.state_of(conclude.op_id, conclude.day);
    IF s.slot = 0 AND s.lease_left IS NULL THEN -- only the list knows it, and that since a moment ago
      DELETE FROM onceward.attention AS a WHERE a.op_id = conclude.op_id;
      RETURN 6;
    END IF;
    own := s.writer = conclude.writer AND (s.kind = 1 OR s.source = conclude.source)
           AND (s.generation = conclude.generation OR conclude.generation = 0);
    IF s.kind IN (2, 4) THEN
      RETURN onceward.conclude_after(s.kind, own, s.receipt, l, conclude.account, conclude.operation, conclude.quiet);
    END IF;
    IF s.kind = 3 AND own AND conclude.kind = 3 THEN
      RETURN 1;
    END IF;
    IF conclude.source > 0 AND s.kind < 2 AND s.lease_left > 0 THEN
      PERFORM onceward.attention_unlock(conclude.op_id, s.kind, s.lease_left);
      RETURN 5;
    END IF;
    IF s.kind = 1 AND NOT own AND s.lease_left > 0 THEN
      IF conclude.kind = 2 THEN
        PERFORM onceward.keep_evidence(l);
        IF l.receipt IS NOT NULL AND conclude.receipt_unique THEN
          PERFORM onceward.add_receipts(ARRAY[l.op_id], ARRAY[conclude.account], ARRAY[conclude.operation], ARRAY[l.receipt],
                                        ARRAY[conclude.tombstone_ms]);
        END IF;
      END IF;
      RETURN 3;
    END IF;
    -- That one attempt did nothing says nothing of a later one; and a later one nothing of the first.
    IF conclude.kind = 4 AND (s.generation > conclude.generation AND conclude.generation > 0
                              OR conclude.source = 0 AND conclude.generation > 1) THEN
      RETURN 3;
    END IF;
    IF s.kind = 0 AND conclude.source = 0 AND conclude.generation = 1 THEN
      CONTINUE WHEN NOT onceward.conclude_first(l, conclude.day, conclude.account, conclude.operation, conclude.key);
      l.slot := 1;
      PERFORM onceward.concluded(l, conclude.key_hash, conclude.account, conclude.operation, conclude.receipt_unique, conclude.tombstone_ms);
      RETURN 1;
    END IF;
    base := CASE WHEN s.kind = 1 AND own THEN s.slot
                 ELSE onceward.settle_unknown(conclude.op_id, conclude.day, conclude.writer) END;
    CONTINUE WHEN base IS NULL;
    l.slot := base + 1;
    IF conclude.kind = 3 THEN
      IF base <> s.slot OR s.kind <> 1 THEN
        RETURN 1; -- it is unknown, whoever said it
      END IF;
      l.expires_at := 'infinity'; l.keep_until := 'infinity';
    ELSIF conclude.kind = 2 THEN
      l.hash := onceward.row_hash(conclude.account, conclude.operation, conclude.key, l.op_id, l.slot, l.status, l.headers, l.body);
    END IF;
    IF conclude.kind = 4 THEN
      SELECT k::text INTO l.key_was FROM onceward.key AS k WHERE k.key_hash = conclude.key_hash AND k.op_id = conclude.op_id;
    END IF;
    CONTINUE WHEN NOT onceward.late_add(l);
    PERFORM onceward.concluded(l, conclude.key_hash, conclude.account, conclude.operation, conclude.receipt_unique, conclude.tombstone_ms);
    RETURN CASE WHEN l.kind = 3 AND onceward.answer_before(l.op_id, l.slot) THEN 2 ELSE 1 END;
  END LOOP;
  RAISE EXCEPTION 'record % changes all the time', conclude.op_id USING ERRCODE = 'serialization_failure';
END $$;

-- Until when the response of a record's later result is kept, in seconds since 1970; NULL: it has none.
CREATE FUNCTION onceward.late_expires(op_id bigint) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  RETURN (SELECT CASE WHEN l.kind = 2 THEN extract(epoch FROM l.expires_at)::bigint END FROM onceward.event_late AS l
          WHERE l.op_id = late_expires.op_id AND l.slot > 0 ORDER BY l.slot DESC LIMIT 1);
END $$;

-- Whose record it is, from the list or from its day; no row: neither has it.
CREATE FUNCTION onceward.facts_of(op_id bigint, day date)
RETURNS TABLE (key_hash uuid, account bytea, operation bytea, key bytea) LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY SELECT a.key_hash, a.account, a.operation, a.key FROM onceward.attention AS a WHERE a.op_id = facts_of.op_id;
  IF NOT FOUND THEN
    RETURN QUERY SELECT op.key_hash, op.account, op.operation, op.key FROM onceward.op AS op
    WHERE op.op_id = facts_of.op_id AND op.expires_on = facts_of.day AND op.account <> ''; -- '': erased
  END IF;
END $$;

-- Another result in place of one that no upstream gave. A released record gets its key back, if nobody
-- has used it since.
CREATE FUNCTION onceward.amend(op_id bigint, slot smallint, was smallint, key_hash uuid, account bytea, operation bytea, key bytea,
                               kind smallint, status smallint, headers bytea, body bytea, receipt bytea, evidence text,
                               source smallint, retention_ms bigint, tombstone_ms bigint, writer bigint)
RETURNS smallint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  l   onceward.event_late;
  old text;
BEGIN
  DELETE FROM onceward.attention AS a WHERE a.op_id = amend.op_id;
  SELECT e.key_was INTO old FROM onceward.event_late AS e
  WHERE e.op_id = amend.op_id AND e.slot > 0 AND e.key_was IS NOT NULL ORDER BY e.slot DESC LIMIT 1;
  IF was = 4 AND amend.kind = 2 THEN
    IF old IS NULL THEN
      RETURN 9;
    END IF;
    INSERT INTO onceward.key SELECT (old::onceward.key).* ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RETURN 9;
    END IF;
  END IF;
  l.op_id := amend.op_id; l.slot := amend.slot + 1; l.at := clock_timestamp(); l.writer := amend.writer; l.kind := amend.kind;
  l.generation := 0; l.source := amend.source; l.status := amend.status; l.headers := amend.headers; l.body := amend.body;
  l.receipt := amend.receipt; l.note := convert_to(amend.evidence, 'UTF8');
  l.expires_at := clock_timestamp() + amend.retention_ms * interval '1 millisecond';
  l.keep_until := clock_timestamp() + amend.tombstone_ms * interval '1 millisecond';
  IF amend.kind = 2 THEN
    l.hash := onceward.row_hash(amend.account, amend.operation, amend.key, l.op_id, l.slot, l.status, l.headers, l.body);
  ELSE
    SELECT coalesce(k::text, old) INTO l.key_was FROM (SELECT 1) AS one
    LEFT JOIN onceward.key AS k ON k.key_hash = amend.key_hash AND k.op_id = amend.op_id;
  END IF;
  IF NOT onceward.late_add(l) THEN
    RETURN 7;
  END IF;
  PERFORM onceward.concluded(l, amend.key_hash, amend.account, amend.operation, false, amend.tombstone_ms);
  UPDATE onceward.event_late AS e SET keep_until = greatest(e.keep_until, l.keep_until) WHERE e.op_id = l.op_id;
  RETURN 1;
END $$;

-- What an operator knows of a record: completed (2) or not executed (4). As conclude, and
--   7 its generation is another one than expected
--   8 an upstream's result is final
--   9 the key has been used again since the record was released
--  10 somebody has resolved it, and not in slot `amends`
-- What an operator, a report or the deadline said before can be amended by who says that he has seen it:
-- `amends` is the slot in which it stands. Else, of two who resolve one record, both would be believed.
CREATE FUNCTION onceward.resolve(op_id bigint, day date, expected_generation smallint, kind smallint, status smallint,
                                 headers bytea, body bytea, receipt bytea, evidence text, who text, source smallint,
                                 retention_ms bigint, tombstone_ms bigint, writer bigint, amends smallint DEFAULT NULL)
RETURNS smallint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  f      record;
  s      record;
  result smallint;
BEGIN
  SELECT * INTO f FROM onceward.facts_of(resolve.op_id, resolve.day);
  IF NOT FOUND THEN
    RETURN 6;
  END IF;
  PERFORM onceward.attention_lock(resolve.op_id, resolve.day, f.key_hash, f.account, f.operation, f.key);
  SELECT * INTO s FROM onceward.state_of(resolve.op_id, resolve.day);
  IF s.generation <> resolve.expected_generation THEN
    result := 7;
  ELSIF s.kind IN (2, 4) AND s.source < 2 THEN
    result := 8;
  ELSIF resolve.amends IS DISTINCT FROM (CASE WHEN s.kind IN (2, 4) THEN s.slot END) THEN
    result := 10;
  END IF;
  IF result IS NOT NULL THEN
    PERFORM onceward.attention_unlock(resolve.op_id, s.kind, s.lease_left);
    DELETE FROM onceward.attention AS a WHERE a.op_id = resolve.op_id AND s.kind IN (2, 4);
    RETURN result;
  END IF;
  IF s.kind IN (2, 4) THEN
    result := onceward.amend(resolve.op_id, s.slot, s.kind, f.key_hash, f.account, f.operation, f.key, resolve.kind, resolve.status,
                             resolve.headers, resolve.body, resolve.receipt, resolve.evidence, resolve.source,
                             resolve.retention_ms, resolve.tombstone_ms, resolve.writer);
  ELSE
    result := onceward.conclude(resolve.op_id, resolve.day, f.key_hash, f.account, f.operation, f.key, 0::smallint, resolve.source,
                                resolve.kind, resolve.status, resolve.headers, resolve.body, resolve.receipt,
                                convert_to(resolve.evidence, 'UTF8'), resolve.retention_ms, resolve.tombstone_ms, resolve.writer);
  END IF;
  IF result = 1 THEN
    PERFORM onceward.audit_add(resolve.who, 'resolve', resolve.op_id::text, resolve.evidence,
      CASE WHEN resolve.kind = 4 THEN 'not executed' ELSE 'completed with ' || resolve.status END
      || CASE WHEN resolve.source = 3 THEN ', by a report' ELSE '' END
      || CASE WHEN s.kind IN (2, 4) THEN ', amending' ELSE '' END);
  END IF;
  RETURN result;
END $$;

-- How these attempts ended, and what became of their records since; all of one day, see version 1. Of a
-- record whose first attempt has a result, nearly all that are asked for, only that row is looked at. kind
-- is that of the highest slot; NULL: no end is written. lease_left is that of the first attempt (where it
-- is asked for) or of the resend under way; tried_ms how long ago the last resend began. A record that
-- nothing but its key knows any more was completed, and its response is gone.
DROP FUNCTION onceward.read_records(bigint[], smallint[], date);
CREATE FUNCTION onceward.read_records(op_ids bigint[], look_at_leases smallint[], day date)
RETURNS TABLE (place bigint, kind smallint, status smallint, headers bytea, body bytea, hash bytea,
               writer bigint, at bigint, lease_left bigint, left_out boolean,
               slot smallint, source smallint, generation smallint, tried_ms bigint, expires bigint, expired boolean)
LANGUAGE plpgsql STABLE ROWS 100 SET enable_seqscan = off AS $$
DECLARE
  f      record;
  l      onceward.event_late;
  so_far bigint := 0;
BEGIN
  FOR f IN
    SELECT t.op_id, t.look, t.place, e.kind, e.status, e.headers, e.body, e.hash, e.writer, e.at
    FROM unnest(op_ids, look_at_leases) WITH ORDINALITY AS t(op_id, look, place)
    LEFT JOIN LATERAL (
      SELECT * FROM onceward.event
      WHERE event.op_id = t.op_id AND event.slot = 1 AND event.expires_on = read_records.day
      OFFSET 0) AS e ON true
  LOOP
    place := f.place; kind := f.kind; status := f.status; headers := f.headers; body := f.body; hash := f.hash;
    writer := f.writer; at := extract(epoch FROM f.at)::bigint;
    lease_left := NULL; slot := 1; source := 0; generation := 1; tried_ms := NULL; expires := NULL; expired := false;
    IF f.kind IS NULL OR f.kind = 3 THEN
      SELECT * INTO l FROM onceward.event_late AS e
      WHERE e.op_id = f.op_id AND e.slot > 0 ORDER BY e.slot DESC LIMIT 1;
      IF FOUND THEN
        kind := l.kind; status := l.status; headers := l.headers; body := l.body; hash := l.hash; writer := l.writer;
        at := extract(epoch FROM l.at)::bigint; slot := l.slot; source := l.source;
        SELECT count(*) + 1, (extract(epoch FROM now() - max(c.at)) * 1000)::bigint INTO generation, tried_ms
        FROM onceward.event_late AS c WHERE c.op_id = f.op_id AND c.slot > 0 AND c.kind = 1;
        IF l.kind = 1 THEN
          lease_left := (extract(epoch FROM l.lease_until - now()) * 1000)::bigint;
        ELSIF l.kind = 2 THEN
          expires := extract(epoch FROM l.expires_at)::bigint; expired := l.expires_at <= now();
        END IF;
      ELSIF f.kind IS NULL AND f.look = 1 THEN
        lease_left := onceward.lease_left(f.op_id, read_records.day);
        IF lease_left IS NULL AND read_records.day <= (now() AT TIME ZONE 'UTC')::date
           AND NOT EXISTS (SELECT FROM onceward.attention AS a WHERE a.op_id = f.op_id) THEN
          kind := 2;
        END IF;
      END IF;
    END IF;
    so_far := so_far + coalesce(octet_length(body), 0);
    left_out := body IS NOT NULL AND so_far > 8388608 AND place > 1;
    IF left_out THEN
      body := NULL;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- As in version 1, and what others than the attempt have released.
CREATE OR REPLACE FUNCTION onceward.free_keys(hashes uuid[], op_ids bigint[], days date[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  DELETE FROM onceward.key AS k USING unnest(hashes, op_ids, days) AS t(key_hash, op_id, day)
  WHERE k.key_hash = t.key_hash AND k.op_id = t.op_id
    AND (EXISTS (SELECT FROM onceward.event AS e
                 WHERE e.op_id = t.op_id AND e.slot = 1 AND e.expires_on = t.day AND e.kind = 4)
         OR (SELECT l.kind FROM onceward.event_late AS l
             WHERE l.op_id = t.op_id AND l.slot > 0 ORDER BY l.slot DESC LIMIT 1) = 4);
END $$;

-- A program of version 1 obeys no stop.
INSERT INTO onceward.schema_version (version, oldest_program) VALUES (2, 2);
