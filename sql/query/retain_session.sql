-- Of the session, where it is a direct one: what waits for a lock gives up and is tried again; a vacuum
-- of many keys takes its time, and is gentle.
SELECT set_config('lock_timeout', '10s', false), set_config('statement_timeout', '0', false),
       set_config('vacuum_cost_delay', '2ms', false)
