-- The row of a key, with the time of the same moment, and which server tells it: 0 if a statement is no
-- transaction of its own, -1 if the session has set its clock, -2 if it takes an empty text for NULL. Without
-- a row the kind is -1.
SELECT {now}, IF('' IS NULL, -2, IF(@@autocommit, IF({clock}, {server}, -1), 0)),
  COALESCE(kind, -1), COALESCE(value, ''), COALESCE(expires, 0), COALESCE(holds, ''), COALESCE(last, 0), COALESCE(kept, 0)
FROM (SELECT 1) AS one LEFT JOIN lockstep_lock ON `key` = ?
