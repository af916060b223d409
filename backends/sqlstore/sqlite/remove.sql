-- Removes a key that nobody has used for an hour, and whose number is no longer needed.
DELETE FROM main.lockstep_lock WHERE key = ? AND max(expires, kept) < unixepoch() * 1000000 - 3600000000
