-- The rows of a range of keys, in their order, as read.sql reads one.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), @@autocommit, kind, value, expires, holds, last, kept, `key`
FROM lockstep_lock WHERE `key` >= ? AND `key` < ? ORDER BY `key` LIMIT ?
