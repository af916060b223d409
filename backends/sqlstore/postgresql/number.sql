-- Numbers of grants. The row of the key is locked.

-- draw is the number of a grant, or 0 if the numbers have come to their end. again says that the token
-- had the key before: it keeps its number. By count, the number is kept for ever. By clock, it is the
-- time in microseconds, or the last number plus one if that is greater, and is kept for a day after its
-- last use, or for ever if it was by count before.
CREATE OR REPLACE FUNCTION lockstep.draw(k bytea, again boolean, numbering int, t timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  n   bigint;
  now bigint := extract(epoch FROM t) * 1000000;
BEGIN
  SELECT last INTO n FROM lockstep.number WHERE key = k AND kept > t;
  n := coalesce(n, 0);
  IF NOT again OR n = 0 THEN
    n := n + 1;
    IF numbering = 2 THEN
      n := greatest(n, now);
    END IF;
  END IF;
  IF n >= 9007199254740992 THEN
    RETURN 0;
  END IF;
  INSERT INTO lockstep.number AS o (key, last, kept)
    VALUES (k, n, CASE numbering WHEN 1 THEN 'infinity' ELSE lockstep.after(t, greatest(n - now, 0)) + interval '24 hours' END)
    ON CONFLICT (key) DO UPDATE SET last = excluded.last, kept = greatest(o.kept, excluded.kept);
  RETURN n;
END $$;

-- raise sets the number of a key that the token has, unless it is greater already.
CREATE OR REPLACE FUNCTION lockstep.raise(k bytea, token bytea, number bigint, OUT outcome int) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM lockstep.lock WHERE key = k AND kind = 1 AND value = token AND expires > clock_timestamp() FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    outcome := lockstep.missing(k);
    RETURN;
  END IF;
  INSERT INTO lockstep.number AS o (key, last, kept) VALUES (k, number, 'infinity')
    ON CONFLICT (key) DO UPDATE SET last = excluded.last, kept = excluded.kept
    WHERE o.last <= excluded.last OR o.kept <= clock_timestamp();
  outcome := CASE WHEN FOUND THEN 1 ELSE 0 END;
END $$;
