-- Attempts that ended after their lease: the sweep may have listed them.
DELETE FROM onceward.attention WHERE op_id = ANY ($1::int8[]) AND slot = 0
