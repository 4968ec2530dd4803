-- How many records of each operation wait for somebody (counted to 100,000), and since when the
-- oldest does. Goes from operation to operation along the index, so that a long list costs no more.
WITH RECURSIVE name AS (
  (SELECT operation FROM onceward.attention ORDER BY operation LIMIT 1)
  UNION ALL
  SELECT (SELECT a.operation FROM onceward.attention AS a WHERE a.operation > name.operation
          ORDER BY a.operation LIMIT 1)
  FROM name WHERE name.operation IS NOT NULL)
SELECT name.operation,
       (SELECT count(*) FROM (SELECT FROM onceward.attention AS a WHERE a.operation = name.operation LIMIT 100000) AS few),
       (SELECT extract(epoch FROM now() - a.created_at)::int8 FROM onceward.attention AS a
        WHERE a.operation = name.operation ORDER BY a.created_at LIMIT 1)
FROM name WHERE name.operation IS NOT NULL
