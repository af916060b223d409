-- Lets a lock live longer that has not ended. It counts no row if the lock lives long enough already.
UPDATE lockstep_lock SET expires = GREATEST(expires, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?)
WHERE `key` = ? AND kind = 1 AND value = ? AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
