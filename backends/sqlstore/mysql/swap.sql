-- Changes the row of a key if it is as it was read, and if it is not too late. It always changes
-- something, so it counts one row whether the driver counts the rows that were found or changed.
UPDATE lockstep_lock SET kind = ?, value = ?, expires = ?, holds = ?, last = ?, kept = ?
WHERE `key` = ? AND kind = ? AND value = ? AND expires = ? AND holds = ? AND last = ? AND kept = ?
  AND {now} < ?
  AND @@autocommit AND {clock}
