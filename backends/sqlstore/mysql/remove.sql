-- Removes such a key, unless it has been used since.
DELETE FROM lockstep_lock
WHERE `key` = ? AND GREATEST(expires, kept) < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - 3600000000
