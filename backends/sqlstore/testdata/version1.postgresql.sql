-- The tables of the locks of one database. All times are those of the database server.
CREATE SCHEMA IF NOT EXISTS lockstep;

-- One row for each key. The row stays when the lock is released: the next grant then changes the row in
-- its place, which writes less than a new row. sweep removes rows that have been free for an hour.
-- A key is bytes and not text, because the order of text can change with an update of the operating
-- system, and an index with a wrong order would admit a key twice.
CREATE TABLE IF NOT EXISTS lockstep.lock (
  key     bytea PRIMARY KEY,
  kind    smallint NOT NULL DEFAULT 0, -- 0 free, 1 a lock, 2 reserved for a waiter, 3 shared holds; any other: not ours
  value   bytea,                       -- 1: the token, 2: the waiter, 3: the group of the holds
  expires timestamptz NOT NULL DEFAULT '-infinity' -- infinity: it has no expiry
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The last number of each key. It outlives the row of the lock.
CREATE TABLE IF NOT EXISTS lockstep.number (
  key  bytea PRIMARY KEY,
  last bigint NOT NULL,
  kept timestamptz NOT NULL -- until when; infinity: for ever
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The holds of keys of kind 3. They count only while the row of the key has not expired.
CREATE TABLE IF NOT EXISTS lockstep.hold (
  key     bytea NOT NULL,
  token   bytea NOT NULL,
  expires timestamptz NOT NULL,
  slot    int, -- NULL: it has none
  PRIMARY KEY (key, token)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The waiters in the queue of each key, in the order of their tickets, and the reservations for shared
-- holds.
CREATE TABLE IF NOT EXISTS lockstep.waiter (
  key      bytea NOT NULL,
  ticket   bigint GENERATED ALWAYS AS IDENTITY,
  waiter   text NOT NULL,
  channel  text NOT NULL,          -- that wakes it
  holds    bytea NOT NULL,         -- the group of the hold that it waits for
  most     int NOT NULL,           -- the limit of that hold; 0: none
  reserved timestamptz,            -- until when; NULL: it stands in the queue
  seen     timestamptz NOT NULL,   -- the last attempt, to the minute
  PRIMARY KEY (key, ticket),
  UNIQUE (key, waiter)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The stores that want to know when a key becomes free. A release removes the rows of its key and tells
-- the stores, which come back if they still want to know. So a store that has died is told once.
CREATE TABLE IF NOT EXISTS lockstep.watcher (
  key     bytea NOT NULL,
  channel text NOT NULL,
  PRIMARY KEY (key, channel)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The queue of a key. The row of the key is locked, except in position.

-- tell sends a message for a waiter to its store: r (there is a reservation for it) or n (for the waiter
-- before it: look when that is over), the waiter, @ and the key.
CREATE OR REPLACE FUNCTION lockstep.tell(kind text, w lockstep.waiter) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify(w.channel, kind || w.waiter || '@' || encode(w.key, 'hex'));
END $$;

-- head is the first waiter in the queue.
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

-- stand gives a waiter the last position, unless it has one.
CREATE OR REPLACE FUNCTION lockstep.stand(k bytea, me text, store text, its bytea, its_most int, t timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lockstep.waiter AS w (key, waiter, channel, holds, most, seen) VALUES (k, me, store, its, its_most, t)
    ON CONFLICT (key, waiter) DO NOTHING;
END $$;

-- offer reserves a free key for the head of its queue, and reminds the next waiter. It is true if me may
-- have the key: me is the head, or nobody waits. A waiter that has died costs one reservation: nobody
-- counts those that hear a message.
CREATE OR REPLACE FUNCTION lockstep.offer(k bytea, me text, reservation bigint, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  w lockstep.waiter;
BEGIN
  SELECT * INTO w FROM lockstep.waiter WHERE key = k AND reserved IS NULL ORDER BY ticket LIMIT 1;
  IF NOT FOUND OR w.waiter = me THEN
    RETURN true;
  END IF;
  DELETE FROM lockstep.waiter WHERE key = k AND ticket = w.ticket;
  UPDATE lockstep.lock SET kind = 2, value = convert_to(w.waiter, 'UTF8'), expires = lockstep.after(t, reservation) WHERE key = k;
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
  IF r.kind = 3 AND r.expires > t AND r.expires < 'infinity' AND (gone.reserved IS NOT NULL OR coalesce(w.waiter = me, false)) THEN
    told := lockstep.room(k, r.value, reservation, t);
  END IF;
  IF coalesce(w.waiter = me, false) AND NOT told THEN
    PERFORM lockstep.remind(k);
  END IF;
  RETURN gone.waiter IS NOT NULL;
END $$;

-- The calls for locks. Each is one function, so it is one round trip and one transaction, and its plans
-- are kept by the session whatever pooler is in between. Under READ COMMITTED each statement of a
-- function sees what others have committed before it.
--
-- A function that changes a key first locks the row of the key, so the changes of one key have an order.

-- locked locks the row of a key, which it adds if it is missing.
CREATE OR REPLACE FUNCTION lockstep.locked(k bytea) RETURNS lockstep.lock LANGUAGE plpgsql AS $$
DECLARE
  r lockstep.lock;
BEGIN
  LOOP
    SELECT * INTO r FROM lockstep.lock WHERE key = k FOR UPDATE;
    IF FOUND THEN
      RETURN r;
    END IF;
    INSERT INTO lockstep.lock (key) VALUES (k) ON CONFLICT DO NOTHING;
  END LOOP;
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
BEGIN
  outcome := 0; number := 0; left_us := 0; place := 0;
  SELECT * INTO r FROM lockstep.lock WHERE key = k;
  FOR attempt IN 1..2 LOOP -- without a lock on the row, and then with it
    t := clock_timestamp();
    ours := false;
    mine := false;
    IF r.kind <> 0 AND r.expires > t THEN
      ours := r.kind = 1 AND r.value = token;
      mine := r.kind = 2 AND me <> '' AND r.value = convert_to(me, 'UTF8');
      IF r.kind NOT IN (1, 2) THEN
        outcome := 2;
        RETURN;
      END IF;
      IF NOT ours AND NOT mine THEN
        IF attempt = 2 AND me <> '' THEN
          PERFORM lockstep.stand(k, me, channel, '', 0, t);
        END IF;
        place := lockstep.position(k, me, t);
        IF attempt = 2 OR me = '' OR place > 0 THEN
          left_us := lockstep.until(t, r.expires);
          holder := CASE WHEN r.kind = 1 THEN lockstep.label(r.value) END;
          RETURN;
        END IF;
      END IF;
    END IF;
    IF attempt = 1 THEN
      r := lockstep.locked(k);
    END IF;
  END LOOP;
  IF in_order AND NOT ours AND NOT mine AND NOT lockstep.offer(k, me, reservation, t) THEN
    IF me <> '' THEN
      PERFORM lockstep.stand(k, me, channel, '', 0, t);
    END IF;
    left_us := reservation;
    place := lockstep.position(k, me, t);
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
  UPDATE lockstep.lock SET kind = 0, value = NULL, expires = clock_timestamp()
    WHERE key = k AND kind = 1 AND value = token AND expires > clock_timestamp();
  IF FOUND THEN
    PERFORM lockstep.free(k, reservation);
    outcome := 1;
  ELSE
    outcome := lockstep.missing(k);
  END IF;
END $$;

-- free gives a key that has become free to the head of its queue, or tells those that watch it.
CREATE OR REPLACE FUNCTION lockstep.free(k bytea, reservation bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF lockstep.offer(k, '', reservation, clock_timestamp()) THEN
    PERFORM lockstep.wake(k);
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

-- watch asks to be told when a key becomes free. The lock on the row keeps it from crossing a release.
CREATE OR REPLACE FUNCTION lockstep.watch(k bytea, store text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM lockstep.lock WHERE key = k FOR UPDATE;
  INSERT INTO lockstep.watcher (key, channel) VALUES (k, store) ON CONFLICT DO NOTHING;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstep.unwatch(k bytea, store text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lockstep.watcher WHERE key = k AND channel = store;
  RETURN FOUND;
END $$;

-- Numbers of grants. The row of the key is locked.

-- draw is the number of a grant, or 0 if the numbers have come to their end. again says that the token
-- had the key before: it keeps its number. By count, the number is kept for ever. By clock, it is the
-- time in microseconds, or the last number plus one if that is greater, and is kept for a day after its
-- last use.
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
    ON CONFLICT (key) DO UPDATE SET last = excluded.last, kept = excluded.kept;
  RETURN n;
END $$;

-- raise sets the number of a key that the token has, unless it is greater already.
CREATE OR REPLACE FUNCTION lockstep.raise(k bytea, token bytea, number bigint, OUT outcome int) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM lockstep.lock WHERE key = k AND kind = 1 AND value = token AND expires > clock_timestamp() FOR UPDATE;
  IF NOT FOUND THEN
    outcome := lockstep.missing(k);
    RETURN;
  END IF;
  INSERT INTO lockstep.number AS o (key, last, kept) VALUES (k, number, 'infinity')
    ON CONFLICT (key) DO UPDATE SET last = excluded.last, kept = excluded.kept
    WHERE o.last <= excluded.last OR o.kept <= clock_timestamp();
  outcome := CASE WHEN FOUND THEN 1 ELSE 0 END;
END $$;

-- Shared holds of a key. The row of the key is locked, except in the first look of enter.

-- A tally is what a key has: how many holds and reservations, and their group. given is how many
-- reservations admit has made.
DO $$ BEGIN
  CREATE TYPE lockstep.tally AS (holds bigint, reserved bigint, its bytea, given int);
EXCEPTION WHEN duplicate_object THEN NULL; END $$;

CREATE OR REPLACE FUNCTION lockstep.fits(n lockstep.tally, its bytea, most int) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT n.holds + n.reserved = 0 OR n.its = its AND (most <= 0 OR n.holds + n.reserved < most)
$$;

-- count counts what has not ended.
CREATE OR REPLACE FUNCTION lockstep.count(k bytea, its bytea, t timestamptz) RETURNS lockstep.tally LANGUAGE plpgsql AS $$
DECLARE
  n lockstep.tally;
BEGIN
  n.its := its;
  n.given := 0;
  SELECT count(*) INTO n.holds FROM lockstep.hold WHERE key = k AND expires > t;
  SELECT count(*) INTO n.reserved FROM lockstep.waiter WHERE key = k AND reserved > t;
  RETURN n;
END $$;

-- purge removes what has ended. It is true if anything had.
CREATE OR REPLACE FUNCTION lockstep.purge(r lockstep.lock, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  ended boolean;
BEGIN
  IF r.kind <> 3 OR r.expires <= t THEN
    DELETE FROM lockstep.hold WHERE key = r.key;
    DELETE FROM lockstep.waiter WHERE key = r.key AND reserved IS NOT NULL;
    RETURN true;
  END IF;
  DELETE FROM lockstep.hold WHERE key = r.key AND expires <= t;
  ended := FOUND;
  DELETE FROM lockstep.waiter WHERE key = r.key AND reserved <= t;
  RETURN ended OR FOUND;
END $$;

-- admit reserves room for waiters from the head of the queue, until one does not fit or is me.
CREATE OR REPLACE FUNCTION lockstep.admit(k bytea, me text, n lockstep.tally, reservation bigint, t timestamptz) RETURNS lockstep.tally LANGUAGE plpgsql AS $$
DECLARE
  w lockstep.waiter;
BEGIN
  n.given := 0;
  LOOP
    w := lockstep.head(k);
    EXIT WHEN w.waiter IS NULL OR w.waiter = me OR NOT lockstep.fits(n, w.holds, w.most);
    UPDATE lockstep.waiter SET reserved = lockstep.after(t, reservation) WHERE key = k AND ticket = w.ticket;
    PERFORM lockstep.tell('r', w);
    n.reserved := n.reserved + 1;
    n.its := w.holds;
    n.given := n.given + 1;
  END LOOP;
  IF n.given > 0 THEN
    PERFORM lockstep.remind(k);
  END IF;
  RETURN n;
END $$;

-- keep stores the group, and lets the key live as long as its last hold or reservation. longer says that
-- nothing was added or ended: then the key does not live shorter than before.
CREATE OR REPLACE FUNCTION lockstep.keep(k bytea, its bytea, longer boolean, t timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  last timestamptz;
BEGIN
  SELECT max(e) INTO last FROM (
    SELECT max(expires) AS e FROM lockstep.hold WHERE key = k
    UNION ALL SELECT max(reserved) FROM lockstep.waiter WHERE key = k) AS ends;
  IF last IS NULL THEN
    UPDATE lockstep.lock SET kind = 0, value = NULL, expires = t WHERE key = k;
  ELSE
    UPDATE lockstep.lock SET kind = 3, value = its,
      expires = CASE WHEN longer AND kind = 3 AND expires > t THEN greatest(expires, last) ELSE last END WHERE key = k;
  END IF;
END $$;

-- room wakes waiters after something has ended: those in the queue that fit or, if nobody is left there,
-- all that watch the key. It is true if it has woken any.
CREATE OR REPLACE FUNCTION lockstep.room(k bytea, its bytea, reservation bigint, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  n lockstep.tally := lockstep.admit(k, '', lockstep.count(k, its, t), reservation, t);
BEGIN
  PERFORM lockstep.keep(k, n.its, false, t);
  IF (lockstep.head(k)).waiter IS NULL THEN
    PERFORM lockstep.wake(k);
  END IF;
  RETURN n.given > 0;
END $$;

-- enter adds a hold. me is the waiter, empty for none. outcome is 0 held, 1 granted, 2 another type, 3 the
-- numbers have come to their end. left_us is 0 if it is unknown, and -1 if there is no expiry. The slot
-- is -1 for none.
CREATE OR REPLACE FUNCTION lockstep.enter(
  k bytea, me_token bytea, us bigint, its bytea, most int, numbered boolean, slots boolean,
  me text, store text, in_order boolean, reservation bigint,
  OUT outcome int, OUT number bigint, OUT left_us bigint, OUT place bigint, OUT holder bytea, OUT holds bigint, OUT slot int
) LANGUAGE plpgsql AS $$
DECLARE
  r       lockstep.lock;
  t       timestamptz;
  n       lockstep.tally;
  live    boolean;
  ended   boolean := false;
  there   boolean; -- the hold
  mine    boolean := false; -- it is reserved for me
  enters  boolean;
  given   int := 0;
BEGIN
  outcome := 0; number := 0; left_us := 0; place := 0; holds := 0; slot := -1;
  SELECT * INTO r FROM lockstep.lock WHERE key = k;
  FOR attempt IN 1..2 LOOP -- without a lock on the row, and then with it
    t := clock_timestamp();
    live := coalesce(r.kind <> 0 AND r.expires > t, false);
    IF live AND r.kind <> 3 THEN
      outcome := 2;
      RETURN;
    END IF;
    IF live AND r.expires = 'infinity' THEN
      left_us := -1;
      RETURN;
    END IF;
    IF attempt = 2 THEN
      ended := lockstep.purge(r, t);
    END IF;
    n := lockstep.count(k, CASE WHEN live THEN r.value END, t);
    there := live AND EXISTS (SELECT FROM lockstep.hold AS h WHERE h.key = k AND h.token = me_token AND h.expires > t);
    IF attempt = 1 THEN
      IF live AND NOT there AND NOT lockstep.fits(n, its, most) AND NOT lockstep.ends(k, t) THEN
        place := lockstep.position(k, me, t);
        IF me = '' OR place > 0 THEN
          holds := n.holds;
          SELECT l.left_us, l.holder INTO left_us, holder FROM lockstep.left(k, n, its, most, t) AS l;
          RETURN;
        END IF;
      END IF;
      r := lockstep.locked(k);
    END IF;
  END LOOP;

  IF me <> '' THEN
    DELETE FROM lockstep.waiter AS w WHERE w.key = k AND w.waiter = me AND w.reserved IS NOT NULL;
    mine := FOUND;
  END IF;
  IF mine THEN
    n.reserved := n.reserved - 1;
  END IF;
  IF there THEN
    enters := true;
  ELSIF mine THEN -- what was reserved after it has counted it
    enters := n.its = its AND (most <= 0 OR n.holds < most) OR lockstep.fits(n, its, most);
  ELSIF in_order THEN
    n := lockstep.admit(k, me, n, reservation, t);
    given := n.given;
    enters := coalesce((lockstep.head(k)).waiter = me, true) AND lockstep.fits(n, its, most);
  ELSE
    enters := lockstep.fits(n, its, most);
  END IF;

  IF enters THEN
    IF numbered THEN
      number := lockstep.draw(k, n.holds > 0, 2, t);
      IF number = 0 THEN
        outcome := 3;
        RETURN;
      END IF;
    END IF;
    IF me <> '' THEN
      DELETE FROM lockstep.waiter AS w WHERE w.key = k AND w.waiter = me;
    END IF;
    IF n.holds + n.reserved = 0 THEN
      n.its := its;
    END IF;
    IF there THEN
      UPDATE lockstep.hold AS h SET expires = greatest(h.expires, lockstep.after(t, us)) WHERE h.key = k AND h.token = me_token
        RETURNING coalesce(h.slot, -1) INTO slot;
    ELSE
      IF slots THEN
        slot := lockstep.free_slot(k);
      END IF;
      INSERT INTO lockstep.hold (key, token, expires, slot) VALUES (k, me_token, lockstep.after(t, us), nullif(slot, -1));
      n.holds := n.holds + 1;
    END IF;
    outcome := 1;
    holds := n.holds;
  ELSE
    holds := n.holds;
    SELECT l.left_us, l.holder INTO left_us, holder FROM lockstep.left(k, n, its, most, t) AS l;
    IF me <> '' THEN
      PERFORM lockstep.stand(k, me, store, its, most, t);
    END IF;
  END IF;
  IF ended OR mine AND NOT enters THEN -- there may be room for others
    n := lockstep.admit(k, '', n, reservation, t);
    given := given + n.given;
  END IF;
  IF NOT enters THEN
    place := lockstep.position(k, me, t);
  END IF;
  IF enters OR ended OR mine OR given > 0 THEN
    PERFORM lockstep.keep(k, n.its, NOT enters, t);
  END IF;
END $$;

-- ends is true if something of the key has ended and is still there.
CREATE OR REPLACE FUNCTION lockstep.ends(k bytea, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM lockstep.hold WHERE key = k AND expires <= t)
    OR EXISTS (SELECT FROM lockstep.waiter WHERE key = k AND reserved <= t);
END $$;

-- free_slot is the lowest that no hold has.
CREATE OR REPLACE FUNCTION lockstep.free_slot(k bytea) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  RETURN min(s) FROM (
    SELECT 0 AS s UNION ALL SELECT slot + 1 FROM lockstep.hold WHERE key = k AND slot IS NOT NULL) AS candidates
    WHERE NOT EXISTS (SELECT FROM lockstep.hold WHERE key = k AND slot = s);
END $$;

-- left is how long until a hold would be admitted if no other is renewed or ended: until all have ended,
-- or as many as are too many. holder is the label of the last of those.
CREATE OR REPLACE FUNCTION lockstep.left(k bytea, n lockstep.tally, its bytea, most int, t timestamptz, OUT left_us bigint, OUT holder bytea) LANGUAGE plpgsql AS $$
DECLARE
  many bigint := n.holds + n.reserved;
BEGIN
  left_us := 0;
  IF n.its = its AND most > 0 THEN
    many := greatest(many - most + 1, 1);
  END IF;
  IF many > 0 THEN
    SELECT lockstep.until(t, e.at), lockstep.label(e.token) INTO left_us, holder FROM (
      SELECT expires AS at, token FROM lockstep.hold WHERE key = k AND expires > t
      UNION ALL SELECT reserved, NULL FROM lockstep.waiter WHERE key = k AND reserved > t) AS e
      ORDER BY e.at OFFSET many - 1 LIMIT 1;
  END IF;
  left_us := coalesce(left_us, 0);
END $$;

-- renew lets a hold live longer. outcome is 0 if it has ended, 1, or 2 for another type.
CREATE OR REPLACE FUNCTION lockstep.renew(k bytea, its bytea, us bigint, OUT outcome int) LANGUAGE plpgsql AS $$
DECLARE
  r lockstep.lock;
  t timestamptz;
BEGIN
  SELECT * INTO r FROM lockstep.lock WHERE key = k FOR UPDATE;
  t := clock_timestamp();
  outcome := 0;
  IF r.kind <> 0 AND r.kind <> 3 AND r.expires > t THEN
    outcome := 2;
  ELSIF r.kind = 3 AND r.expires > t THEN
    UPDATE lockstep.hold SET expires = greatest(expires, lockstep.after(t, us)) WHERE key = k AND token = its AND expires > t;
    IF FOUND THEN
      UPDATE lockstep.lock SET expires = lockstep.after(t, us) WHERE key = k AND expires < lockstep.after(t, us);
      outcome := 1;
    END IF;
  END IF;
END $$;

-- leave ends a hold. outcome as for renew.
CREATE OR REPLACE FUNCTION lockstep.leave(k bytea, its bytea, reservation bigint, OUT outcome int) LANGUAGE plpgsql AS $$
DECLARE
  r lockstep.lock;
  t timestamptz;
BEGIN
  SELECT * INTO r FROM lockstep.lock WHERE key = k FOR UPDATE;
  t := clock_timestamp();
  outcome := 0;
  IF r.kind <> 0 AND r.kind <> 3 AND r.expires > t THEN
    outcome := 2;
  ELSIF r.kind = 3 AND r.expires > t AND EXISTS (SELECT FROM lockstep.hold WHERE key = k AND token = its AND expires > t) THEN
    DELETE FROM lockstep.hold WHERE key = k AND token = its;
    PERFORM lockstep.purge(r, t);
    PERFORM lockstep.room(k, r.value, reservation, t);
    outcome := 1;
  END IF;
END $$;

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
  SELECT * INTO r FROM lockstep.lock WHERE key = k FOR UPDATE;
  t := clock_timestamp();
  IF NOT FOUND OR r.kind = 0 OR r.expires <= t THEN
    RETURN;
  END IF;
  IF r.kind NOT IN (1, 2) THEN
    outcome := 2;
    RETURN;
  END IF;
  IF r.kind = 2 OR r.value <> from_token AND r.value <> to_token THEN
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

-- transfer_hold does the same for a hold, which keeps its slot. The results are those of enter.
CREATE OR REPLACE FUNCTION lockstep.transfer_hold(
  k bytea, from_token bytea, to_token bytea, us bigint, numbered boolean,
  OUT outcome int, OUT number bigint, OUT left_us bigint, OUT holds bigint, OUT slot int
) LANGUAGE plpgsql AS $$
DECLARE
  r     lockstep.lock;
  t     timestamptz;
  there boolean;
BEGIN
  outcome := 0; number := 0; left_us := 0; holds := 0; slot := -1;
  SELECT * INTO r FROM lockstep.lock WHERE key = k FOR UPDATE;
  t := clock_timestamp();
  IF NOT FOUND OR r.kind = 0 OR r.expires <= t THEN
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

-- print names a token, without a way back to it. A value of another kind may have no token.
CREATE OR REPLACE FUNCTION lockstep.print(token bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT encode(substring(sha256(token) FOR 8), 'hex')
$$;

-- is_token is true for the form of the tokens of a Client: see backends.IsToken.
CREATE OR REPLACE FUNCTION lockstep.is_token(token bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN length(token) < 26 THEN false
    WHEN length(token) > 26 AND get_byte(token, length(token) - 27) <> 32 THEN false
    ELSE encode(substring(token FROM length(token) - 25), 'escape') ~ '^[A-Z2-7]{26}$' END
$$;

-- shown is what inspect tells of a hold.
CREATE OR REPLACE FUNCTION lockstep.shown(token bytea, left_us bigint, slot int) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
  SELECT jsonb_build_object('holder', encode(lockstep.label(token), 'hex'), 'print', lockstep.print(token),
    'token', lockstep.is_token(token), 'left', left_us, 'slot', slot)
$$;

-- inspect tells what a key has, for people, as JSON without a token. Times are in microseconds,
-- labels are in hex. It writes nothing.
CREATE OR REPLACE FUNCTION lockstep.inspect(k bytea, listed int) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  r     lockstep.lock;
  t     timestamptz := clock_timestamp();
  shown jsonb;
BEGIN
  SELECT * INTO r FROM lockstep.lock WHERE key = k AND kind <> 0 AND expires > t;
  shown := jsonb_build_object(
    'kind', coalesce(r.kind, 0),
    'foreign', coalesce(r.expires = 'infinity', false),
    'fence', coalesce((SELECT last FROM lockstep.number WHERE key = k AND kept > t), 0),
    'waiting', (SELECT count(*) FROM lockstep.waiter WHERE key = k AND reserved IS NULL),
    'waiters', (SELECT coalesce(jsonb_agg(encode(lockstep.label(convert_to(w.waiter, 'UTF8')), 'hex') ORDER BY w.ticket), '[]') FROM
      (SELECT waiter, ticket FROM lockstep.waiter WHERE key = k AND reserved IS NULL ORDER BY ticket LIMIT listed) AS w));
  IF r.kind = 1 AND r.expires < 'infinity' THEN
    shown := shown || jsonb_build_object('holding', 1, 'holds',
      jsonb_build_array(lockstep.shown(r.value, lockstep.until(t, r.expires), -1)));
  ELSIF r.kind = 1 THEN
    shown := shown || jsonb_build_object('print', lockstep.print(r.value));
  ELSIF r.kind = 2 THEN
    shown := shown || '{"reserved": 1}';
  ELSIF r.kind = 3 AND r.expires < 'infinity' THEN
    shown := shown || jsonb_build_object(
      'group', encode(r.value, 'hex'),
      'reserved', (SELECT count(*) FROM lockstep.waiter WHERE key = k AND reserved > t),
      'holding', (SELECT count(*) FROM lockstep.hold WHERE key = k AND expires > t),
      'holds', (SELECT coalesce(jsonb_agg(
        lockstep.shown(h.token, lockstep.until(t, h.expires), coalesce(h.slot, -1)) ORDER BY h.expires), '[]') FROM
        (SELECT * FROM lockstep.hold WHERE key = k AND expires > t ORDER BY expires LIMIT listed) AS h));
  END IF;
  RETURN shown::text;
END $$;

-- list tells of at most as many keys with a prefix, in the order of the keys, as inspect does: of
-- those behind seen, and before upper, NULL for no end. It leaves out keys that are free and of
-- other types. next is the last key, in hex, if there may be more.
CREATE OR REPLACE FUNCTION lockstep.list(prefix bytea, upper bytea, seen bytea, many int, listed int) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  t     timestamptz := clock_timestamp();
  r     lockstep.lock;
  n     int := 0;
  last  bytea := '';
  shown jsonb := '[]';
BEGIN
  FOR r IN SELECT * FROM lockstep.lock WHERE key >= prefix AND key > seen AND (upper IS NULL OR key < upper) ORDER BY key LIMIT many LOOP
    n := n + 1;
    last := r.key;
    IF r.kind IN (1, 2, 3) AND r.expires > t THEN
      shown := shown || jsonb_build_object('key', encode(r.key, 'hex'), 'state', lockstep.inspect(r.key, listed)::jsonb);
    END IF;
  END LOOP;
  RETURN jsonb_build_object('keys', shown, 'next', CASE WHEN n = many THEN encode(last, 'hex') ELSE '' END)::text;
END $$;

-- evict ends the hold of a key that has the print seen. closed takes the place of its token; if it
-- is NULL, the key is open at once. anything says that what is no token is evicted too. outcome is
-- 0 if there is no such hold, 1, 2 for another type, or 4 if the value may be no lock.
CREATE OR REPLACE FUNCTION lockstep.evict(k bytea, seen text, closed bytea, anything boolean, reservation bigint, OUT outcome int) LANGUAGE plpgsql AS $$
DECLARE
  r    lockstep.lock;
  t    timestamptz;
  gone bytea;
BEGIN
  SELECT * INTO r FROM lockstep.lock WHERE key = k FOR UPDATE;
  t := clock_timestamp();
  outcome := 0;
  IF NOT FOUND OR r.kind IN (0, 2) OR r.expires <= t THEN
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
  END IF;
END $$;

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

