-- The locks of one database: one row for each key. All times are those of the server, in microseconds
-- since 1970. The row stays when the lock is released, and is removed when nobody has used it for an
-- hour and its number is no longer needed.
-- Keys and values are bytes and not text: most collations of text take k and K for the same.
CREATE TABLE IF NOT EXISTS lockstep_lock (
  `key`   VARBINARY(1024) NOT NULL PRIMARY KEY,
  kind    INT NOT NULL,             -- 0 free, 1 a lock, 3 shared holds; any other: not ours
  value   VARBINARY(4096) NOT NULL, -- 1: the token, 3: the group of the holds
  expires BIGINT NOT NULL,          -- 9223372036854775807: it has no expiry
  holds   MEDIUMBLOB NOT NULL,      -- 3: the holds, as JSON
  last    BIGINT NOT NULL,          -- the last number of the key
  kept    BIGINT NOT NULL           -- how long the number is kept
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;
