-- The rules by which this gateway compares requests, for people; sorted by id.
INSERT INTO onceward.rules (id, text)
SELECT * FROM unnest($1::int8[], $2::text[])
ON CONFLICT (id) DO NOTHING
