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
    'waiting', (SELECT count(*) FROM lockstep.waiter WHERE key = k AND (reserved IS NULL OR reserved <= t)),
    'waiters', (SELECT coalesce(jsonb_agg(encode(lockstep.label(convert_to(w.waiter, 'UTF8')), 'hex') ORDER BY w.ticket), '[]') FROM
      (SELECT waiter, ticket FROM lockstep.waiter WHERE key = k AND (reserved IS NULL OR reserved <= t) ORDER BY ticket LIMIT listed) AS w));
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
