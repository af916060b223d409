-- Changes the row of a key if it is as it was read, and if it is not too late.
UPDATE main.lockstep_lock SET kind = ?, value = ?, expires = ?, holds = ?, last = ?, kept = ?
WHERE key = ? AND kind = ? AND value = ? AND expires = ? AND holds = ? AND last = ? AND kept = ?
  AND CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 < ?
