-- The row of a key that had none.
INSERT INTO main.lockstep_lock (key, kind, value, expires, holds, last, kept, look) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
