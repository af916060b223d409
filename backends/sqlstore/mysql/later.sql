-- Looks at a key again an hour after it may have ended.
UPDATE lockstep_lock SET look = LEAST(GREATEST(expires, kept), 9223372033254775807) + 3600000000
WHERE `key` = ?
  AND @@autocommit
