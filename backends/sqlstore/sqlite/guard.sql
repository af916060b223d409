-- The row of a key, for the holder's own transaction. It changes nothing, but only one transaction at a
-- time may write: so nobody takes the key before the end of this one.
UPDATE main.lockstep_lock SET kind = kind WHERE key = ?
RETURNING CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000, 1, kind, value, expires, holds, last, kept
