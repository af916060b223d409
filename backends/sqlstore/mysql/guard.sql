-- The row of a key, for the holder's own transaction. The lock on the row keeps others from changing it
-- before the end of this transaction. It reads what was committed last, whatever the isolation level.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 1, kind, value, expires, holds, last, kept
FROM lockstep_lock WHERE `key` = ? LOCK IN SHARE MODE
