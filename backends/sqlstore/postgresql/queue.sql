-- The queue of a key. The row of the key is locked, except in position.
--
-- A waiter whose reservation has ended is late: reserved is a time that is over. It keeps its ticket, and
-- nobody waits for it. Its next attempt puts it in line again.

-- shortest is how long a reservation lasts for a waiter that is near. A call tells what its own waiter
-- needs.
CREATE OR REPLACE FUNCTION lockstep.shortest(reservation bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT least(reservation, 200000)
$$;

-- kept is until when the key is reserved for a waiter.
CREATE OR REPLACE FUNCTION lockstep.kept(w lockstep.waiter, reservation bigint, t timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT t + greatest(lockstep.shortest(reservation), least(w.keep, 2000000)) * interval '1 microsecond'
$$;

-- arrive notes an attempt of a waiter: it is not late.
CREATE OR REPLACE FUNCTION lockstep.arrive(k bytea, me text, reservation bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lockstep.waiter SET reserved = NULL, keep = reservation
    WHERE key = k AND waiter = me AND (reserved IS NOT NULL OR keep <> reservation);
END $$;

-- tidy removes late waiters that have made no attempt for some time. seen is exact to a minute.
CREATE OR REPLACE FUNCTION lockstep.tidy(k bytea, t timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lockstep.waiter WHERE key = k AND reserved <= t AND seen < t - interval '90 seconds';
END $$;

-- tell sends a message for a waiter to its store: r (there is a reservation for it) or n (for the waiter
-- before it: look when that is over), the waiter, @ and the key. Nobody needs the default. It makes the server
-- refuse the Install of version 1, which looks at no version: CREATE OR REPLACE may add a default, and may not
-- remove one.
CREATE OR REPLACE FUNCTION lockstep.tell(kind text, w lockstep.waiter DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify(w.channel, kind || w.waiter || '@' || encode(w.key, 'hex'));
END $$;

-- stir tells late waiters that a key is free, since nobody is in line.
CREATE OR REPLACE FUNCTION lockstep.stir(k bytea, t timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  w lockstep.waiter;
BEGIN
  FOR w IN SELECT * FROM lockstep.waiter WHERE key = k AND reserved <= t ORDER BY ticket LIMIT 8 LOOP
    PERFORM lockstep.tell('r', w);
  END LOOP;
END $$;

-- head is the first waiter in line.
CREATE OR REPLACE FUNCTION lockstep.head(k bytea) RETURNS lockstep.waiter LANGUAGE plpgsql AS $$
DECLARE
  w lockstep.waiter;
BEGIN
  SELECT * INTO w FROM lockstep.waiter WHERE key = k AND reserved IS NULL ORDER BY ticket LIMIT 1;
  RETURN w;
END $$;

-- remind tells the head of the queue to look when the reservations of now are over.
CREATE OR REPLACE FUNCTION lockstep.remind(k bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  w lockstep.waiter := lockstep.head(k);
BEGIN
  IF w.waiter IS NOT NULL THEN
    PERFORM lockstep.tell('n', w);
  END IF;
END $$;

-- position is that of a waiter in the queue, from 1; 0: it has none. It notes once a minute that the
-- waiter is alive.
CREATE OR REPLACE FUNCTION lockstep.position(k bytea, me text, t timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  w lockstep.waiter;
BEGIN
  IF me = '' THEN
    RETURN 0;
  END IF;
  SELECT * INTO w FROM lockstep.waiter WHERE key = k AND waiter = me AND reserved IS NULL;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  IF w.seen < t - interval '1 minute' THEN
    UPDATE lockstep.waiter SET seen = t WHERE key = k AND waiter = me;
  END IF;
  RETURN count(*) FROM lockstep.waiter WHERE key = k AND reserved IS NULL AND ticket <= w.ticket;
END $$;

-- comes is true for a waiter that has no position, and is not late.
CREATE OR REPLACE FUNCTION lockstep.comes(k bytea, me text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN NOT EXISTS (SELECT FROM lockstep.waiter WHERE key = k AND waiter = me);
END $$;

-- stand gives a waiter the last position, unless it has one.
CREATE OR REPLACE FUNCTION lockstep.stand(k bytea, me text, store text, its bytea, its_most int, t timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lockstep.waiter AS w (key, waiter, channel, holds, most, seen) VALUES (k, me, store, its, its_most, t)
    ON CONFLICT (key, waiter) DO NOTHING;
END $$;

-- offer reserves a free key for the head of its queue, and reminds the next waiter. It is true if me may
-- have the key: me is the head, or nobody is in line. A waiter that has died costs one reservation: nobody
-- counts those that hear a message.
CREATE OR REPLACE FUNCTION lockstep.offer(k bytea, me text, reservation bigint, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  w lockstep.waiter;
BEGIN
  PERFORM lockstep.tidy(k, t);
  SELECT * INTO w FROM lockstep.waiter WHERE key = k AND reserved IS NULL ORDER BY ticket LIMIT 1;
  IF NOT FOUND OR w.waiter = me THEN
    RETURN true;
  END IF;
  UPDATE lockstep.waiter SET reserved = lockstep.kept(w, reservation, t) WHERE key = k AND ticket = w.ticket;
  UPDATE lockstep.lock SET kind = 2, value = convert_to(w.waiter, 'UTF8'), expires = lockstep.kept(w, reservation, t) WHERE key = k;
  PERFORM lockstep.tell('r', w);
  PERFORM lockstep.remind(k);
  RETURN false;
END $$;

-- quit removes a waiter. What was reserved for it, or the room that it kept from others as the head of
-- the queue, goes to the next waiters. If nobody gets it, the new head is reminded: the head looks when
-- a lease ends.
CREATE OR REPLACE FUNCTION lockstep.quit(k bytea, me text, reservation bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r    lockstep.lock := lockstep.locked(k);
  t    timestamptz := clock_timestamp();
  w    lockstep.waiter := lockstep.head(k);
  gone lockstep.waiter;
  told boolean := false;
BEGIN
  DELETE FROM lockstep.waiter WHERE key = k AND waiter = me RETURNING * INTO gone;
  IF r.kind = 2 AND r.expires > t AND r.value = convert_to(me, 'UTF8') THEN
    UPDATE lockstep.lock SET kind = 0, value = NULL, expires = t WHERE key = k;
    PERFORM lockstep.free(k, reservation);
    RETURN true;
  END IF;
  IF r.kind = 3 AND r.expires > t AND r.expires < 'infinity' AND (coalesce(gone.reserved > t, false) OR coalesce(w.waiter = me, false)) THEN
    told := lockstep.room(k, r.value, reservation, t);
  END IF;
  IF coalesce(w.waiter = me, false) AND NOT told THEN
    PERFORM lockstep.remind(k);
  END IF;
  IF r.expires = '-infinity' THEN
    PERFORM lockstep.tidy();
  END IF;
  RETURN gone.waiter IS NOT NULL;
END $$;
