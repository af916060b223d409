-- read
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), @@autocommit, COALESCE(kind, -1), COALESCE(value, ''),
  COALESCE(expires, 0), COALESCE(holds, ''), COALESCE(last, 0), COALESCE(kept, 0)
FROM (SELECT 1) AS one LEFT JOIN lockstep_lock ON `key` = ?

-- list
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), @@autocommit, kind, value, expires, holds, last, kept, `key`
FROM lockstep_lock WHERE `key` >= ? AND `key` < ? ORDER BY `key` LIMIT ?

-- insert
INSERT INTO lockstep_lock (`key`, kind, value, expires, holds, last, kept) VALUES (?, ?, ?, ?, ?, ?, ?)

-- swap
UPDATE lockstep_lock SET kind = ?, value = ?, expires = ?, holds = ?, last = ?, kept = ?
WHERE `key` = ? AND kind = ? AND value = ? AND expires = ? AND holds = ? AND last = ? AND kept = ?
  AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) < ?

-- extend
UPDATE lockstep_lock SET expires = GREATEST(expires, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?)
WHERE `key` = ? AND kind = 1 AND value = ? AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- release
UPDATE lockstep_lock SET kind = 0, value = '', expires = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
WHERE `key` = ? AND kind = 1 AND value = ? AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- old
SELECT `key` FROM lockstep_lock
WHERE GREATEST(expires, kept) < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - 3600000000 LIMIT 100

-- remove
DELETE FROM lockstep_lock
WHERE `key` = ? AND GREATEST(expires, kept) < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - 3600000000

-- guard
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 1, kind, value, expires, holds, last, kept
FROM lockstep_lock WHERE `key` = ? LOCK IN SHARE MODE
