-- For this transaction alone. A plan made while a day was empty stays, and would read all of it.
SELECT set_config('enable_seqscan', 'off', true)
