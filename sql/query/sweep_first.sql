-- About the oldest attempt of a day: op is only ever appended to, so its first page holds it.
SELECT min(op_id) FROM onceward.op WHERE expires_on = $1::date AND ctid < '(1,0)'::tid
