-- The locks of one database file: one row for each key. All times are those of the computer, in
-- microseconds since 1970. The row stays when the lock is released, and is removed when nobody has
-- used it for an hour and its number is no longer needed.
CREATE TABLE IF NOT EXISTS main.lockstep_lock (
  key     BLOB PRIMARY KEY,
  kind    INTEGER NOT NULL, -- 0 free, 1 a lock, 3 shared holds; any other: not ours
  value   BLOB NOT NULL,    -- 1: the token, 3: the group of the holds
  expires INTEGER NOT NULL, -- 9223372036854775807: it has no expiry
  holds   BLOB NOT NULL,    -- 3: the holds, as JSON
  last    INTEGER NOT NULL, -- the last number of the key
  kept    INTEGER NOT NULL, -- how long the number is kept
  look    INTEGER NOT NULL DEFAULT 0 -- when a sweep looks at the row again
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS main.lockstep_look ON lockstep_lock (look);
CREATE TABLE IF NOT EXISTS main.lockstep_version (
  one    INTEGER PRIMARY KEY CHECK (one = 1),
  number INTEGER NOT NULL
) STRICT;
INSERT INTO main.lockstep_version VALUES (1, 2) ON CONFLICT DO NOTHING;
