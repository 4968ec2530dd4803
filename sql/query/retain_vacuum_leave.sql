SELECT onceward.retention_leave('vacuum', $1::int8, true)
