-- The row of a key that had none. It is no INSERT IGNORE, which would hide a value that was cut. A kind that
-- is NULL is an error: the session has autocommit off, or has set its clock. Another session was asked before.
INSERT INTO lockstep_lock (`key`, kind, value, expires, holds, last, kept, look)
VALUES (?, IF(@@autocommit AND {clock}, ?, NULL), ?, ?, ?, ?, ?, ?)
