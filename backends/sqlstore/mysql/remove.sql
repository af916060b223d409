-- Removes a key that nobody has used for an hour, and whose number is no longer needed.
DELETE FROM lockstep_lock
WHERE `key` = ? AND GREATEST(expires, kept) < {now} - 3600000000
  AND @@autocommit
