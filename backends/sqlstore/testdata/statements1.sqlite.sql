-- read
SELECT now.us, 1, coalesce(kind, -1), coalesce(value, x''), coalesce(expires, 0), coalesce(holds, x''), coalesce(last, 0), coalesce(kept, 0)
FROM (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 AS us) AS now LEFT JOIN lockstep_lock ON key = ?

-- list
SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000, 1, kind, value, expires, holds, last, kept, key
FROM lockstep_lock WHERE key >= ? AND key < ? ORDER BY key LIMIT ?

-- insert
INSERT INTO lockstep_lock (key, kind, value, expires, holds, last, kept) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- swap
UPDATE lockstep_lock SET kind = ?, value = ?, expires = ?, holds = ?, last = ?, kept = ?
WHERE key = ? AND kind = ? AND value = ? AND expires = ? AND holds = ? AND last = ? AND kept = ?
  AND CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 < ?

-- extend
UPDATE lockstep_lock SET expires = max(expires, CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 + ?)
WHERE key = ? AND kind = 1 AND value = ? AND expires > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000

-- release
UPDATE lockstep_lock SET kind = 0, value = x'', expires = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000
WHERE key = ? AND kind = 1 AND value = ? AND expires > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000

-- old
SELECT key FROM lockstep_lock WHERE max(expires, kept) < unixepoch() * 1000000 - 3600000000 LIMIT 100

-- remove
DELETE FROM lockstep_lock WHERE key = ? AND max(expires, kept) < unixepoch() * 1000000 - 3600000000

-- guard
UPDATE lockstep_lock SET kind = kind WHERE key = ?
RETURNING CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000, 1, kind, value, expires, holds, last, kept
