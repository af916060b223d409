-- The calls for locks. Each is one function, so it is one round trip and one transaction, and its plans
-- are kept by the session whatever pooler is in between. Under READ COMMITTED each statement of a
-- function sees what others have committed before it.
--
-- A function that changes a key first locks the row of the key, so the changes of one key have an order.
-- One that ends a lock or a hold locks it FOR UPDATE, as alone does, and changes it: guard counts on both.

-- alone locks the row of a key, if there is one, FOR UPDATE: it waits for guards, which an UPDATE without a
-- change of the key does not. The server lets a guard pass a call that waits for the row. So such a call asks
-- for the turn of the key, and guards that come later wait behind it.
CREATE OR REPLACE FUNCTION lockstep.alone(k bytea) RETURNS lockstep.lock LANGUAGE plpgsql AS $$
DECLARE
  r lockstep.lock;
BEGIN
  SELECT * INTO r FROM lockstep.lock WHERE key = k FOR UPDATE SKIP LOCKED;
  IF NOT FOUND AND EXISTS (SELECT FROM lockstep.lock WHERE key = k) THEN
    PERFORM pg_advisory_xact_lock(lockstep.turn(k));
    SELECT * INTO r FROM lockstep.lock WHERE key = k FOR UPDATE;
  END IF;
  RETURN r;
END $$;

-- turn is the number of the advisory lock that puts guards and other calls in order.
CREATE OR REPLACE FUNCTION lockstep.turn(k bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT ('x' || encode(substring(sha256('lockstep '::bytea || k) FOR 8), 'hex'))::bit(64)::bigint
$$;

-- locked locks the row of a key, which it adds if it is missing: a new row has never expired. A call that
-- adds a row pays for a sweep at its end: see tidy.
CREATE OR REPLACE FUNCTION lockstep.locked(k bytea) RETURNS lockstep.lock LANGUAGE plpgsql AS $$
DECLARE
  r lockstep.lock;
BEGIN
  FOR attempt IN 1..10 LOOP -- a sweep may remove the row in between, but not one that is new
    r := lockstep.alone(k);
    IF r.key IS NOT NULL THEN
      RETURN r;
    END IF;
    INSERT INTO lockstep.lock (key) VALUES (k) ON CONFLICT DO NOTHING;
  END LOOP;
  RAISE EXCEPTION 'a policy or a trigger of the table lockstep.lock keeps the role % from the row of the key: remove it', current_user
    USING ERRCODE = '0A000';
END $$;

-- after is the time so many microseconds after t.
CREATE OR REPLACE FUNCTION lockstep.after(t timestamptz, us bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT t + us * interval '1 microsecond'
$$;

-- until is the time from t to e in microseconds, at least 1; -1 if e is infinity.
CREATE OR REPLACE FUNCTION lockstep.until(t timestamptz, e timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN e = 'infinity' THEN -1 ELSE greatest(1, (extract(epoch FROM e - t) * 1000000)::bigint) END
$$;

-- label is what stands in a token before its secret of 26 letters: see backends.HolderOf.
CREATE OR REPLACE FUNCTION lockstep.label(token bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN length(token) > 27 AND get_byte(token, length(token) - 27) = 32
    AND encode(substring(token FROM length(token) - 25), 'escape') ~ '^[A-Z2-7]{26}$'
    THEN substring(token FOR length(token) - 27) ELSE '' END
$$;

-- take gives a key to a token. numbering is 0 for no number, 1 for the last number plus one, 2 for the
-- clock: see draw. me is the waiter, empty for none. outcome is 0 held, 1 granted, 2 another type, 3 the
-- numbers have come to their end. left_us is 0 if it is unknown, and -1 if there is no expiry.
-- An attempt that changes nothing locks nothing, and writes nothing.
CREATE OR REPLACE FUNCTION lockstep.take(
  k bytea, token bytea, us bigint, numbering int, me text, channel text, in_order boolean, reservation bigint,
  OUT outcome int, OUT number bigint, OUT left_us bigint, OUT place bigint, OUT holder bytea
) LANGUAGE plpgsql AS $$
DECLARE
  r    lockstep.lock;
  t    timestamptz;
  ours boolean; -- the key has the token
  mine boolean; -- it is reserved for me
  adds boolean := false; -- a row
BEGIN
  outcome := 0; number := 0; left_us := 0; place := 0;
  SELECT * INTO r FROM lockstep.lock WHERE key = k;
  FOR attempt IN 1..2 LOOP -- without a lock on the row, and then with it
    t := clock_timestamp();
    ours := false;
    mine := false;
    IF r.kind <> 0 AND r.expires > t THEN
      ours := r.kind = 1 AND r.value IS NOT DISTINCT FROM token;
      mine := r.kind = 2 AND me <> '' AND r.value IS NOT DISTINCT FROM convert_to(me, 'UTF8');
      IF r.kind NOT IN (1, 2) THEN
        outcome := 2;
        RETURN;
      END IF;
      IF NOT ours AND NOT mine THEN
        IF attempt = 2 AND me <> '' THEN
          adds := lockstep.comes(k, me);
          PERFORM lockstep.stand(k, me, channel, '', 0, t);
          PERFORM lockstep.arrive(k, me, reservation);
        END IF;
        place := lockstep.position(k, me, t);
        IF attempt = 2 OR me = '' OR place > 0 THEN
          left_us := lockstep.until(t, r.expires);
          holder := CASE WHEN r.kind = 1 THEN lockstep.label(r.value) END;
          IF adds THEN
            PERFORM lockstep.tidy();
          END IF;
          RETURN;
        END IF;
      END IF;
    END IF;
    IF attempt = 1 THEN
      r := lockstep.locked(k);
      IF me <> '' THEN
        PERFORM lockstep.arrive(k, me, reservation);
      END IF;
    END IF;
  END LOOP;
  IF in_order AND NOT ours AND NOT mine AND NOT lockstep.offer(k, me, reservation, t) THEN
    IF me <> '' THEN
      adds := lockstep.comes(k, me);
      PERFORM lockstep.stand(k, me, channel, '', 0, t);
      PERFORM lockstep.arrive(k, me, reservation);
    END IF;
    SELECT lockstep.until(t, l.expires) INTO left_us FROM lockstep.lock AS l WHERE l.key = k;
    place := lockstep.position(k, me, t);
    IF adds OR r.expires = '-infinity' THEN
      PERFORM lockstep.tidy();
    END IF;
    RETURN;
  END IF;
  IF numbering <> 0 THEN
    number := lockstep.draw(k, ours, numbering, t);
    IF number = 0 THEN
      outcome := 3;
      RETURN;
    END IF;
  END IF;
  IF me <> '' THEN
    DELETE FROM lockstep.waiter WHERE key = k AND waiter = me;
  END IF;
  UPDATE lockstep.lock SET kind = 1, value = token,
    expires = CASE WHEN ours AND expires < 'infinity' THEN greatest(expires, lockstep.after(t, us)) ELSE lockstep.after(t, us) END
    WHERE key = k;
  outcome := 1;
  IF r.expires = '-infinity' THEN
    PERFORM lockstep.tidy();
  END IF;
END $$;

-- extend lets a key live longer. outcome is 0 if the token does not have it, 1, or 2 for another type.
CREATE OR REPLACE FUNCTION lockstep.extend(k bytea, token bytea, us bigint, OUT outcome int) LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lockstep.lock SET expires = greatest(expires, lockstep.after(clock_timestamp(), us))
    WHERE key = k AND kind = 1 AND value = token AND expires > clock_timestamp();
  outcome := CASE WHEN FOUND THEN 1 ELSE lockstep.missing(k) END;
END $$;

-- missing is 2 if the key has another type, and 0 otherwise.
CREATE OR REPLACE FUNCTION lockstep.missing(k bytea) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE WHEN EXISTS (SELECT FROM lockstep.lock WHERE key = k AND kind NOT IN (0, 1, 2) AND expires > clock_timestamp())
    THEN 2 ELSE 0 END;
END $$;

-- release ends a lock. outcome as for extend.
CREATE OR REPLACE FUNCTION lockstep.release(k bytea, token bytea, reservation bigint, OUT outcome int) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM lockstep.lock WHERE key = k AND kind = 1 AND value = token FOR UPDATE SKIP LOCKED;
  IF NOT FOUND AND EXISTS (SELECT FROM lockstep.lock WHERE key = k AND kind = 1 AND value = token) THEN
    PERFORM lockstep.alone(k); -- a call of alone in each release would cost 8 % of a grant and a release
  END IF;
  UPDATE lockstep.lock SET kind = 0, value = NULL, expires = clock_timestamp()
    WHERE key = k AND kind = 1 AND value = token AND expires > clock_timestamp();
  IF FOUND THEN
    PERFORM lockstep.free(k, reservation);
    outcome := 1;
  ELSE
    outcome := lockstep.missing(k);
  END IF;
END $$;

-- at_once calls a function for a holder that waits for no lock. outcome is that of the function, or -1 if a
-- transaction has locked the row of the key or the table: an error would be lines in the log of the server.
-- The statement of the caller names no table, since the server locks the tables of a statement before it
-- runs. The limit is the least that a server can be told, for what the function may still wait for.
CREATE OR REPLACE FUNCTION lockstep.at_once(call text, k bytea, its bytea, us bigint, OUT outcome int) LANGUAGE plpgsql AS $$
BEGIN
  outcome := -1;
  BEGIN
    LOCK TABLE lockstep.lock IN ROW EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN;
  END;
  PERFORM set_config('lock_timeout', '1ms', true);
  IF (CASE WHEN call IN ('extend', 'renew') THEN EXISTS (SELECT FROM lockstep.lock WHERE key = k FOR NO KEY UPDATE SKIP LOCKED)
      ELSE EXISTS (SELECT FROM lockstep.lock WHERE key = k FOR UPDATE SKIP LOCKED) END)
    OR NOT EXISTS (SELECT FROM lockstep.lock WHERE key = k AND (kind = 3 OR value = its)) THEN
    outcome := CASE call
      WHEN 'extend' THEN lockstep.extend(k, its, us) WHEN 'release' THEN lockstep.release(k, its, us)
      WHEN 'renew' THEN lockstep.renew(k, its, us) WHEN 'leave' THEN lockstep.leave(k, its, us) END;
  END IF;
END $$;

-- free gives a key that has become free to the head of its queue, or tells those that watch it.
CREATE OR REPLACE FUNCTION lockstep.free(k bytea, reservation bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF lockstep.offer(k, '', reservation, clock_timestamp()) THEN
    PERFORM lockstep.wake(k);
    PERFORM lockstep.stir(k, clock_timestamp());
  END IF;
END $$;

-- wake tells those that watch a key. There is no message if nobody does: a transaction with a message
-- waits for all others that have one.
CREATE OR REPLACE FUNCTION lockstep.wake(k bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  store text;
BEGIN
  IF EXISTS (SELECT FROM lockstep.watcher WHERE key = k) THEN
    FOR store IN DELETE FROM lockstep.watcher WHERE key = k RETURNING channel LOOP
      PERFORM pg_notify(store, 'w@' || encode(k, 'hex'));
    END LOOP;
  END IF;
END $$;

-- watch asks to be told when a key becomes free. The lock on the row keeps it from crossing a release. A
-- sweep removes the watchers together with the row.
CREATE OR REPLACE FUNCTION lockstep.watch(k bytea, store text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r lockstep.lock := lockstep.locked(k);
BEGIN
  INSERT INTO lockstep.watcher (key, channel) VALUES (k, store) ON CONFLICT DO NOTHING;
  IF r.expires = '-infinity' THEN
    PERFORM lockstep.tidy();
  END IF;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstep.unwatch(k bytea, store text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lockstep.watcher WHERE key = k AND channel = store;
  RETURN FOUND;
END $$;
