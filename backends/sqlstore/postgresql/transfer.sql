-- Moving a lock, or a hold, from one token to another.

-- transfer gives a key that has the token from_token to to_token. The results are those of take.
CREATE OR REPLACE FUNCTION lockstep.transfer(
  k bytea, from_token bytea, to_token bytea, us bigint, numbered boolean,
  OUT outcome int, OUT number bigint, OUT left_us bigint, OUT holder bytea
) LANGUAGE plpgsql AS $$
DECLARE
  r lockstep.lock;
  t timestamptz;
BEGIN
  outcome := 0; number := 0; left_us := 0;
  r := lockstep.alone(k);
  t := clock_timestamp();
  IF r.key IS NULL OR r.kind = 0 OR r.expires <= t THEN
    RETURN;
  END IF;
  IF r.kind NOT IN (1, 2) THEN
    outcome := 2;
    RETURN;
  END IF;
  IF r.kind = 2 OR r.value IS DISTINCT FROM from_token AND r.value IS DISTINCT FROM to_token THEN
    left_us := lockstep.until(t, r.expires);
    holder := CASE WHEN r.kind = 1 THEN lockstep.label(r.value) END;
    RETURN;
  END IF;
  IF numbered THEN
    number := lockstep.draw(k, r.value = to_token, 2, t);
    IF number = 0 THEN
      outcome := 3;
      RETURN;
    END IF;
  END IF;
  UPDATE lockstep.lock SET value = to_token,
    expires = CASE WHEN expires < 'infinity' THEN greatest(expires, lockstep.after(t, us)) ELSE lockstep.after(t, us) END
    WHERE key = k;
  outcome := 1;
END $$;

-- transfer_hold does the same for a hold, which keeps its slot. The results are those of enter; an outcome of 5
-- is a hold of another group than wanted. With NULL, as programs of version 1 call it, any group will do.
CREATE OR REPLACE FUNCTION lockstep.transfer_hold(
  k bytea, from_token bytea, to_token bytea, us bigint, numbered boolean, wanted bytea,
  OUT outcome int, OUT number bigint, OUT left_us bigint, OUT holds bigint, OUT slot int
) LANGUAGE plpgsql AS $$
DECLARE
  r     lockstep.lock;
  t     timestamptz;
  there boolean;
BEGIN
  outcome := 0; number := 0; left_us := 0; holds := 0; slot := -1;
  r := lockstep.alone(k);
  t := clock_timestamp();
  IF r.key IS NULL OR r.kind = 0 OR r.expires <= t THEN
    RETURN;
  END IF;
  IF r.kind <> 3 THEN
    outcome := 2;
    RETURN;
  END IF;
  IF r.expires = 'infinity' THEN
    left_us := -1;
    RETURN;
  END IF;
  PERFORM lockstep.purge(r, t);
  SELECT count(*) INTO holds FROM lockstep.hold AS h WHERE h.key = k;
  there := EXISTS (SELECT FROM lockstep.hold AS h WHERE h.key = k AND h.token = to_token);
  IF NOT there AND NOT EXISTS (SELECT FROM lockstep.hold AS h WHERE h.key = k AND h.token = from_token) THEN
    RETURN;
  END IF;
  IF r.value <> wanted THEN
    outcome := 5;
    RETURN;
  END IF;
  IF numbered THEN
    number := lockstep.draw(k, there OR holds > 1, 2, t);
    IF number = 0 THEN
      outcome := 3;
      RETURN;
    END IF;
  END IF;
  UPDATE lockstep.hold AS h SET token = to_token, expires = greatest(h.expires, lockstep.after(t, us))
    WHERE h.key = k AND h.token = CASE WHEN there THEN to_token ELSE from_token END
    RETURNING coalesce(h.slot, -1) INTO slot;
  PERFORM lockstep.keep(k, r.value, false, t);
  outcome := 1;
END $$;

CREATE OR REPLACE FUNCTION lockstep.transfer_hold(
  k bytea, from_token bytea, to_token bytea, us bigint, numbered boolean,
  OUT outcome int, OUT number bigint, OUT left_us bigint, OUT holds bigint, OUT slot int
) LANGUAGE sql AS $$
  SELECT * FROM lockstep.transfer_hold(k, from_token, to_token, us, numbered, NULL);
$$;
