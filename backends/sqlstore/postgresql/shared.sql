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

-- purge removes what has ended. It is true if anything had. Waiters whose reservation has ended are late,
-- since minus infinity.
CREATE OR REPLACE FUNCTION lockstep.purge(r lockstep.lock, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  ended boolean;
BEGIN
  IF r.kind <> 3 OR r.expires <= t THEN
    DELETE FROM lockstep.hold WHERE key = r.key;
    UPDATE lockstep.waiter SET reserved = '-infinity' WHERE key = r.key AND reserved > '-infinity';
    RETURN true;
  END IF;
  DELETE FROM lockstep.hold WHERE key = r.key AND expires <= t;
  ended := FOUND;
  UPDATE lockstep.waiter SET reserved = '-infinity' WHERE key = r.key AND reserved <= t AND reserved > '-infinity';
  RETURN ended OR FOUND;
END $$;

-- admit reserves room for waiters from the head of the queue, until one does not fit or is me.
CREATE OR REPLACE FUNCTION lockstep.admit(k bytea, me text, n lockstep.tally, reservation bigint, t timestamptz) RETURNS lockstep.tally LANGUAGE plpgsql AS $$
DECLARE
  w lockstep.waiter;
  passed bigint := 0; -- the ticket before which nobody is in line: those rows are not read again
BEGIN
  n.given := 0;
  PERFORM lockstep.tidy(k, t);
  LOOP
    SELECT * INTO w FROM lockstep.waiter WHERE key = k AND ticket > passed AND reserved IS NULL ORDER BY ticket LIMIT 1;
    EXIT WHEN NOT FOUND OR w.waiter = me OR NOT lockstep.fits(n, w.holds, w.most);
    passed := w.ticket;
    UPDATE lockstep.waiter SET reserved = lockstep.kept(w, reservation, t) WHERE key = k AND ticket = w.ticket;
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
    UNION ALL SELECT max(reserved) FROM lockstep.waiter WHERE key = k AND reserved > t) AS ends;
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
    IF n.reserved = 0 THEN
      PERFORM lockstep.stir(k, t);
    END IF;
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
  adds    boolean := false; -- a waiter
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
    mine := EXISTS (SELECT FROM lockstep.waiter AS w WHERE w.key = k AND w.waiter = me AND w.reserved > t);
    PERFORM lockstep.arrive(k, me, reservation);
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
      adds := lockstep.comes(k, me);
      PERFORM lockstep.stand(k, me, store, its, most, t);
      PERFORM lockstep.arrive(k, me, reservation);
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
  IF adds OR r.expires = '-infinity' THEN
    PERFORM lockstep.tidy();
  END IF;
END $$;

-- ends is true if something of the key has ended and is still there.
CREATE OR REPLACE FUNCTION lockstep.ends(k bytea, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM lockstep.hold WHERE key = k AND expires <= t)
    OR EXISTS (SELECT FROM lockstep.waiter WHERE key = k AND reserved <= t AND reserved > '-infinity');
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
  SELECT * INTO r FROM lockstep.lock WHERE key = k FOR NO KEY UPDATE;
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
  r := lockstep.alone(k);
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
