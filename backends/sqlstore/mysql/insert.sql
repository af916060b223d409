-- The row of a key that had none. It is no INSERT IGNORE, which would hide a value that was cut.
INSERT INTO lockstep_lock (`key`, kind, value, expires, holds, last, kept, look) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
