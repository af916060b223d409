-- sweep removes what nobody needs any more, at most 1,000 rows of each table: keys that have been free
-- for an hour, numbers whose time is over, holds that have ended, and waiters that have died.
CREATE OR REPLACE FUNCTION lockstep.sweep() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  DELETE FROM lockstep.lock WHERE key IN (
    SELECT key FROM lockstep.lock AS l WHERE expires < t - interval '1 hour'
      AND NOT EXISTS (SELECT FROM lockstep.waiter AS w WHERE w.key = l.key) LIMIT 1000 FOR UPDATE SKIP LOCKED);
  DELETE FROM lockstep.number WHERE key IN (SELECT key FROM lockstep.number WHERE kept < t LIMIT 1000 FOR UPDATE SKIP LOCKED);
  DELETE FROM lockstep.hold WHERE (key, token) IN (
    SELECT key, token FROM lockstep.hold WHERE expires < t - interval '1 hour' LIMIT 1000 FOR UPDATE SKIP LOCKED);
  DELETE FROM lockstep.waiter WHERE (key, ticket) IN (
    SELECT key, ticket FROM lockstep.waiter WHERE seen < t - interval '10 minutes' LIMIT 1000 FOR UPDATE SKIP LOCKED);
  DELETE FROM lockstep.watcher AS w WHERE NOT EXISTS (SELECT FROM lockstep.lock AS l WHERE l.key = w.key);
  RETURN true;
END $$;
