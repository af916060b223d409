-- Ends a lock that has not ended.
UPDATE lockstep_lock SET kind = 0, value = '', expires = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
WHERE `key` = ? AND kind = 1 AND value = ? AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
