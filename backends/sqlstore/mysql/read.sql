-- The row of a key, with the time of the same moment, and whether a statement is a transaction of its
-- own. Without a row the kind is -1.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), @@autocommit, COALESCE(kind, -1), COALESCE(value, ''),
  COALESCE(expires, 0), COALESCE(holds, ''), COALESCE(last, 0), COALESCE(kept, 0)
FROM (SELECT 1) AS one LEFT JOIN lockstep_lock ON `key` = ?
