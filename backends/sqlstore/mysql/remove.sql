-- Removes such a key, unless it has been used since.
DELETE FROM lockstep_lock
WHERE `key` = ? AND GREATEST(expires, kept) < {now} - 3600000000
