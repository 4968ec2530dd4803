-- How often records were replayed since the last time, in the order of their op_ids.
SELECT onceward.add_replays($1::int8[], $2::int8[], $3::date[])
