-- For one transaction of somebody who waits at a screen.
SELECT set_config('statement_timeout', '10s', true), set_config('lock_timeout', '5s', true)
