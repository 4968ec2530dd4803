-- One step of taking away a day or a month that is over; by itself one day a day.
SELECT doing, day, parent, name, records, listed
FROM onceward.purge_parts($1::int8, $2::int8, $3::int8, $4::int8, true)
