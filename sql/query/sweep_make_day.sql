SELECT onceward.make_day($1::date)
