-- Programs install one after the other. A program does not replace what a newer one has installed.
CREATE SCHEMA IF NOT EXISTS lockstep;
DO $$
DECLARE
  there int;
BEGIN
  PERFORM pg_advisory_xact_lock(7813580212736);
  IF to_regclass('lockstep.version') IS NOT NULL THEN
    SELECT number INTO there FROM lockstep.version FOR UPDATE;
    IF there > 3 THEN
      RAISE EXCEPTION 'the tables and functions of the locks are of version %, from a newer program; this one has version 3, and replaces nothing; calls of older programs work: leave out Install, or use a newer version', there
        USING ERRCODE = '0A000';
    END IF;
  END IF;
END $$;
