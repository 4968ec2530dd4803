-- The key under which this gateway makes digests, if any, and for how many days its records may stay:
-- two more than the longest tombstone, so that a row that is a day old still covers what is made now.
INSERT INTO onceward.digest_key (id, keep_until)
SELECT id, (now() AT TIME ZONE 'UTC')::date + $2::int4 FROM unnest($1::int4[]) AS id
ON CONFLICT (id, keep_until) DO NOTHING
