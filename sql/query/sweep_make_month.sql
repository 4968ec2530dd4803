SELECT onceward.make_month(((now() AT TIME ZONE 'UTC')::date + $1::int4 * interval '1 month')::date)
