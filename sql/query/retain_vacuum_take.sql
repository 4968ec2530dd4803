SELECT onceward.retention_take('vacuum', $1::int8, 7200000)
