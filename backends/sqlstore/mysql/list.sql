-- The rows of a range of keys, in their order, as read.sql reads one.
SELECT {now}, IF('' IS NULL, -2, IF(@@autocommit, IF({clock}, 1, -1), 0)), kind, value, expires, holds, last, kept, `key`
FROM lockstep_lock WHERE `key` >= ? AND `key` < ? ORDER BY `key` LIMIT ?
