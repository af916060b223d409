-- Lets a lock live longer that has not ended. It counts no row if the lock lives long enough already.
UPDATE lockstep_lock SET expires = GREATEST(expires, {now} + ?)
WHERE `key` = ? AND kind = 1 AND value = ? AND expires > {now}
  AND @@autocommit AND {clock}
