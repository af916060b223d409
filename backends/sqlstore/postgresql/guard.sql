-- guard keeps a lock, or a hold, from being taken over until the transaction of the caller ends. outcome is
-- 1 if the token has it. A call that takes the key over, or renews it, waits for the end of the
-- transaction.
CREATE OR REPLACE FUNCTION lockstep.guard(k bytea, its bytea, OUT outcome int) LANGUAGE plpgsql AS $$
DECLARE
  r lockstep.lock;
BEGIN
  SELECT * INTO r FROM lockstep.lock WHERE key = k FOR SHARE;
  outcome := CASE WHEN r.kind IN (1, 3) AND r.expires > clock_timestamp()
    AND (r.kind = 1 AND r.value = its OR r.kind = 3
      AND EXISTS (SELECT FROM lockstep.hold WHERE key = k AND token = its AND expires > clock_timestamp())) THEN 1 ELSE 0 END;
END $$;
