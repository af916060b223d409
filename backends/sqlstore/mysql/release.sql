-- Ends a lock that has not ended.
UPDATE lockstep_lock SET kind = 0, value = '', expires = {now}
WHERE `key` = ? AND kind = 1 AND value = ? AND expires > {now}
  AND @@autocommit AND {clock}
