-- Lets a lock live longer that has not ended.
UPDATE main.lockstep_lock SET expires = max(expires, CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 + ?)
WHERE key = ? AND kind = 1 AND value = ? AND expires > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000
