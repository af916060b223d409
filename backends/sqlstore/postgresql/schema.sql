-- The tables of the locks of one database, as of version 1: see migrations.sql. All times are those of the
-- database server.

-- One row for each key. The row stays when the lock is released: the next grant then changes the row in
-- its place, which writes less than a new row. sweep_some removes rows that have been free for an hour.
-- A key is bytes and not text, because the order of text can change with an update of the operating
-- system, and an index with a wrong order would admit a key twice.
CREATE TABLE IF NOT EXISTS lockstep.lock (
  key     bytea PRIMARY KEY,
  kind    smallint NOT NULL DEFAULT 0, -- 0 free, 1 a lock, 2 reserved for a waiter, 3 shared holds; any other: not ours
  value   bytea,                       -- 1: the token, 2: the waiter, 3: the group of the holds
  expires timestamptz NOT NULL DEFAULT '-infinity' -- infinity: it has no expiry
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The last number of each key. It outlives the row of the lock.
CREATE TABLE IF NOT EXISTS lockstep.number (
  key  bytea PRIMARY KEY,
  last bigint NOT NULL,
  kept timestamptz NOT NULL -- until when; infinity: for ever
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The holds of keys of kind 3. They count only while the row of the key has not expired.
CREATE TABLE IF NOT EXISTS lockstep.hold (
  key     bytea NOT NULL,
  token   bytea NOT NULL,
  expires timestamptz NOT NULL,
  slot    int, -- NULL: it has none
  PRIMARY KEY (key, token)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The waiters in the queue of each key, in the order of their tickets, and the reservations for shared
-- holds.
CREATE TABLE IF NOT EXISTS lockstep.waiter (
  key      bytea NOT NULL,
  ticket   bigint GENERATED ALWAYS AS IDENTITY,
  waiter   text NOT NULL,
  channel  text NOT NULL,          -- that wakes it
  holds    bytea NOT NULL,         -- the group of the hold that it waits for
  most     int NOT NULL,           -- the limit of that hold; 0: none
  reserved timestamptz,            -- until when; NULL: it stands in the queue
  seen     timestamptz NOT NULL,   -- the last attempt, to the minute
  PRIMARY KEY (key, ticket),
  UNIQUE (key, waiter)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The stores that want to know when a key becomes free. A release removes the rows of its key and tells
-- the stores, which come back if they still want to know. So a store that has died is told once.
CREATE TABLE IF NOT EXISTS lockstep.watcher (
  key     bytea NOT NULL,
  channel text NOT NULL,
  PRIMARY KEY (key, channel)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
