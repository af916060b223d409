-- The row of a key that had none. It is no INSERT IGNORE, which would hide a value that was cut. A kind that
-- is NULL is an error: nobody would commit the row. The clock is not asked, since a replica that is sent
-- statements would ask it again.
INSERT INTO lockstep_lock (`key`, kind, value, expires, holds, last, kept, look)
VALUES (?, IF(@@autocommit, ?, NULL), ?, ?, ?, ?, ?, ?)
