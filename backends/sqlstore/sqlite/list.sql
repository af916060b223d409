-- The rows of a range of keys, in their order, as read.sql reads one.
SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000, 1, kind, value, expires, holds, last, kept, key
FROM main.lockstep_lock WHERE key >= ? AND key < ? ORDER BY key LIMIT ?
