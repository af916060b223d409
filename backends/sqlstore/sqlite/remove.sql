-- Removes such a key, unless it has been used since.
DELETE FROM lockstep_lock WHERE key = ? AND max(expires, kept) < unixepoch() * 1000000 - 3600000000
