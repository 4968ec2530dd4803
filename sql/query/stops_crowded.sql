-- Accounts with many records whose result is not known.
SELECT operation, account, count(*) FROM onceward.attention WHERE state = 3
GROUP BY operation, account HAVING count(*) >= $1::int8 LIMIT 10000
