-- inspect tells what a key has, for people, as JSON without a token. Times are in microseconds, labels are
-- in hex. It writes nothing.
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
      jsonb_build_array(jsonb_build_object('holder', encode(lockstep.label(r.value), 'hex'), 'left', lockstep.until(t, r.expires), 'slot', -1)));
  ELSIF r.kind = 2 THEN
    shown := shown || '{"reserved": 1}';
  ELSIF r.kind = 3 AND r.expires < 'infinity' THEN
    shown := shown || jsonb_build_object(
      'group', encode(r.value, 'hex'),
      'reserved', (SELECT count(*) FROM lockstep.waiter WHERE key = k AND reserved > t),
      'holding', (SELECT count(*) FROM lockstep.hold WHERE key = k AND expires > t),
      'holds', (SELECT coalesce(jsonb_agg(jsonb_build_object(
        'holder', encode(lockstep.label(h.token), 'hex'), 'left', lockstep.until(t, h.expires), 'slot', coalesce(h.slot, -1)) ORDER BY h.expires), '[]') FROM
        (SELECT * FROM lockstep.hold WHERE key = k AND expires > t ORDER BY expires LIMIT listed) AS h));
  END IF;
  RETURN shown::text;
END $$;
