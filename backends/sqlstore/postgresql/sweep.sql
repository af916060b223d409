-- Sweeping is charged to calls that add a row, so that programs tidy up which live for a second or crash.
-- Nothing here waits for a row of a key that is in use: a row that is locked is left for the next sweep.

-- sweep_some looks at no more than so many rows of each kind whose time has come. It removes keys that
-- have been free for an hour, with their holds; numbers whose time is over; and waiters that have died. The
-- others are looked at again when they may have ended. It returns how many keys or numbers it has looked at.
CREATE OR REPLACE FUNCTION lockstep.sweep_some(many int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  t    timestamptz := clock_timestamp();
  r    lockstep.lock;
  n    lockstep.number;
  keys int := 0;
  numbers int := 0;
BEGIN
  DELETE FROM lockstep.waiter WHERE (key, ticket) IN (
    SELECT key, ticket FROM lockstep.waiter WHERE seen < t - interval '10 minutes' ORDER BY seen LIMIT many FOR UPDATE SKIP LOCKED);
  FOR r IN SELECT * FROM lockstep.lock WHERE look < t ORDER BY look LIMIT many FOR UPDATE SKIP LOCKED LOOP
    keys := keys + 1;
    IF r.expires < t - interval '1 hour' AND NOT EXISTS (SELECT FROM lockstep.waiter WHERE key = r.key) THEN
      DELETE FROM lockstep.lock WHERE key = r.key;
      DELETE FROM lockstep.hold WHERE key = r.key;
      PERFORM lockstep.wake(r.key); -- a store that still watches comes back
    ELSE
      UPDATE lockstep.lock SET look = CASE WHEN expires < t - interval '1 hour' THEN t -- it has waiters
        ELSE least(expires, t + interval '1 day') END + interval '1 hour' WHERE key = r.key;
    END IF;
  END LOOP;
  FOR n IN SELECT * FROM lockstep.number WHERE look < t ORDER BY look LIMIT many FOR UPDATE SKIP LOCKED LOOP
    numbers := numbers + 1;
    IF n.kept < t THEN
      DELETE FROM lockstep.number WHERE key = n.key;
    ELSE
      UPDATE lockstep.number SET look = kept WHERE key = n.key;
    END IF;
  END LOOP;
  RETURN greatest(keys, numbers);
END $$;

-- tidy is a sweep for the sake of a row that a call adds: that of a key, or of a waiter. It is the last
-- that the call does. What it has swept stays locked until the end of the call, so two calls that still
-- needed a row could wait for each other. Above READ COMMITTED a sweep can meet a conflict, which is no
-- reason for the call to fail.
CREATE OR REPLACE FUNCTION lockstep.tidy() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lockstep.sweep_some(4);
EXCEPTION WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN
  NULL;
END $$;

-- sweep is for a program that has time.
CREATE OR REPLACE FUNCTION lockstep.sweep() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lockstep.sweep_some(1000);
  RETURN true;
END $$;
