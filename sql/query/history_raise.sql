-- Nothing is forwarded any more, by any gateway, until a person has looked.
SELECT onceward.raise_stop(NULL, NULL, 'history_lost', $1::text, $2::text)
