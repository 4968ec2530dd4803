SELECT (SELECT encode(value, 'hex') FROM onceward.secret WHERE name = 'request_id_key'),
       (SELECT encode(value, 'hex') FROM onceward.secret WHERE name = 'key_salt'),
       (SELECT encode(value, 'hex') FROM onceward.secret WHERE name = 'cursor_key')
