-- Migrations of the tables of schema.sql, which are those of version 1. Each does nothing if all that it
-- makes is there. The tables are locked first, in one order, so that a call which is under way ends before.

-- Version 2: what sweep and the queue need. look is when sweep looks at a row again. It changes seldom, so a
-- call still changes a row in its place, which it could not with an index on expires. keep is how long a
-- reservation for the waiter lasts, in microseconds; 0: not longer than usual.
DO $$ BEGIN
  IF (SELECT count(*) FROM pg_attribute WHERE attname = 'look' AND NOT attisdropped
      AND attrelid IN ('lockstep.lock'::regclass, 'lockstep.number'::regclass)) = 2
    AND EXISTS (SELECT FROM pg_attribute WHERE attname = 'keep' AND NOT attisdropped AND attrelid = 'lockstep.waiter'::regclass)
    AND to_regclass('lockstep.lock_look') IS NOT NULL AND to_regclass('lockstep.number_look') IS NOT NULL
    AND to_regclass('lockstep.waiter_seen') IS NOT NULL THEN
    RETURN;
  END IF;
  -- while this waits for a transaction of somebody else, all calls wait behind it: so it gives up soon
  PERFORM set_config('lock_timeout', '2s', true);
  LOCK TABLE lockstep.lock, lockstep.number, lockstep.hold, lockstep.waiter, lockstep.watcher IN ACCESS EXCLUSIVE MODE;
  ALTER TABLE lockstep.lock ADD COLUMN IF NOT EXISTS look timestamptz NOT NULL DEFAULT '-infinity';
  ALTER TABLE lockstep.lock ALTER COLUMN look SET DEFAULT clock_timestamp() + interval '1 hour';
  ALTER TABLE lockstep.number ADD COLUMN IF NOT EXISTS look timestamptz NOT NULL DEFAULT '-infinity';
  ALTER TABLE lockstep.number ALTER COLUMN look SET DEFAULT clock_timestamp() + interval '24 hours';
  ALTER TABLE lockstep.waiter ADD COLUMN IF NOT EXISTS keep bigint NOT NULL DEFAULT 0;
  CREATE INDEX IF NOT EXISTS lock_look ON lockstep.lock (look);
  CREATE INDEX IF NOT EXISTS number_look ON lockstep.number (look);
  CREATE INDEX IF NOT EXISTS waiter_seen ON lockstep.waiter (seen);
  DELETE FROM lockstep.hold AS h WHERE NOT EXISTS (SELECT FROM lockstep.lock AS l WHERE l.key = h.key);
END $$;
