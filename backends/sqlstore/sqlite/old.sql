-- The keys whose time has come to be looked at.
SELECT key FROM main.lockstep_lock WHERE look < CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 ORDER BY look LIMIT ?
