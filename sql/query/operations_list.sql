SELECT operation, identity, record::text FROM onceward.list_operations()
