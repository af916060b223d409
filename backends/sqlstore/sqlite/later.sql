-- Looks at a key again an hour after it may have ended.
UPDATE main.lockstep_lock SET look = min(max(expires, kept), 9223372033254775807) + 3600000000
WHERE key = ? AND look < CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000
