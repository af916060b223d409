-- The row of a key, for the holder's own transaction. The lock on the row keeps others from changing it
-- before the end of this transaction. It reads what was committed last, whatever the isolation level.
SELECT {now}, IF('' IS NULL, -2, IF({clock}, 1, -1)), kind, value, expires, holds, last, kept
FROM lockstep_lock WHERE `key` = ? LOCK IN SHARE MODE
