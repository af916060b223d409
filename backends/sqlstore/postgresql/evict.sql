-- evict ends the hold of a key that has the print seen. closed takes the place of its token; if it
-- is NULL, the key is open at once. anything says that what is no token is evicted too. outcome is
-- 0 if there is no such hold, 1, 2 for another type, or 4 if the value may be no lock.
CREATE OR REPLACE FUNCTION lockstep.evict(k bytea, seen text, closed bytea, anything boolean, reservation bigint, OUT outcome int) LANGUAGE plpgsql AS $$
DECLARE
  r    lockstep.lock;
  t    timestamptz;
  gone bytea;
BEGIN
  r := lockstep.alone(k);
  t := clock_timestamp();
  outcome := 0;
  IF r.key IS NULL OR r.kind IN (0, 2) OR r.expires <= t THEN
    RETURN;
  END IF;
  IF r.kind = 1 THEN
    gone := r.value;
  ELSIF r.kind <> 3 THEN
    outcome := 2;
    RETURN;
  ELSIF r.expires = 'infinity' THEN
    outcome := 4;
    RETURN;
  ELSE
    SELECT token INTO gone FROM lockstep.hold WHERE key = k AND expires > t AND lockstep.print(token) = seen;
  END IF;
  IF gone IS NULL OR lockstep.print(gone) <> seen THEN
    RETURN;
  END IF;
  IF NOT anything AND NOT lockstep.is_token(gone) OR r.expires = 'infinity' AND NOT (anything AND closed IS NULL) THEN
    outcome := 4;
    RETURN;
  END IF;
  outcome := 1;
  IF r.kind = 1 AND closed IS NULL THEN
    UPDATE lockstep.lock SET kind = 0, value = NULL, expires = t WHERE key = k;
    PERFORM lockstep.free(k, reservation);
  ELSIF r.kind = 1 THEN
    UPDATE lockstep.lock SET value = closed WHERE key = k;
  ELSIF closed IS NULL THEN
    DELETE FROM lockstep.hold WHERE key = k AND token = gone;
    PERFORM lockstep.purge(r, t);
    PERFORM lockstep.room(k, r.value, reservation, t);
  ELSE
    UPDATE lockstep.hold SET token = closed WHERE key = k AND token = gone;
    -- for guard: a transaction with an older snapshot sees the hold, and must find this row changed
    UPDATE lockstep.lock SET expires = expires WHERE key = k;
  END IF;
END $$;
