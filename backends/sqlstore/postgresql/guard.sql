-- guard keeps a lock, or a hold, from being taken over until the transaction of the caller ends. outcome is
-- 1 if the token has it. A call that ends a lease, or takes the key over, waits for the end of the
-- transaction. A renewal does not: FOR KEY SHARE keeps nothing waiting but FOR UPDATE, see alone.
CREATE OR REPLACE FUNCTION lockstep.guard(k bytea, its bytea, OUT outcome int) LANGUAGE plpgsql AS $$
DECLARE
  r    lockstep.lock;
  ends timestamptz;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(lockstep.turn(k));
  FOR look IN 1..2 LOOP
    IF look = 1 THEN
      SELECT * INTO r FROM lockstep.lock WHERE key = k FOR KEY SHARE;
    ELSE -- it has ended, unless a renewal is under way, or was done since the snapshot: then this is a conflict
      SELECT * INTO r FROM lockstep.lock WHERE key = k FOR SHARE;
      PERFORM FROM lockstep.hold WHERE key = k AND token = its FOR SHARE;
    END IF;
    ends := CASE r.kind WHEN 1 THEN CASE WHEN r.value = its THEN r.expires END
      WHEN 3 THEN (SELECT least(r.expires, h.expires) FROM lockstep.hold AS h WHERE h.key = k AND h.token = its) END;
    EXIT WHEN ends IS NULL OR ends > clock_timestamp();
  END LOOP;
  outcome := CASE WHEN ends > clock_timestamp() THEN 1 ELSE 0 END;
END $$;
