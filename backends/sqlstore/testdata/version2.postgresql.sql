-- Parts of the schema lockstep of version 2, as of commit 8921b304: begin.sql, guard.sql and end.sql. Its guard
-- keeps renewals waiting.

-- Programs install one after the other. A program does not replace what a newer one has installed.
CREATE SCHEMA IF NOT EXISTS lockstep;
DO $$
DECLARE
  there int;
BEGIN
  PERFORM pg_advisory_xact_lock(7813580212736);
  IF to_regclass('lockstep.version') IS NOT NULL THEN
    SELECT number INTO there FROM lockstep.version FOR UPDATE;
    IF there > 2 THEN
      RAISE EXCEPTION 'the tables and functions of the locks are of version %, from a newer program; this one has version 2, and replaces nothing', there
        USING ERRCODE = '0A000';
    END IF;
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

-- The version of all that. Every role that may use the schema may read it.
CREATE TABLE IF NOT EXISTS lockstep.version (
  one    boolean PRIMARY KEY DEFAULT true CHECK (one),
  number int NOT NULL
);
GRANT SELECT ON lockstep.version TO PUBLIC;
INSERT INTO lockstep.version (number) VALUES (2) ON CONFLICT (one) DO UPDATE SET number = excluded.number
  WHERE version.number <> excluded.number;

