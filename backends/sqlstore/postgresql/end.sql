-- The version of all that. Every role that may use the schema may read it.
CREATE TABLE IF NOT EXISTS lockstep.version (
  one    boolean PRIMARY KEY DEFAULT true CHECK (one),
  number int NOT NULL
);
GRANT SELECT ON lockstep.version TO PUBLIC;
INSERT INTO lockstep.version (number) VALUES (3) ON CONFLICT (one) DO UPDATE SET number = excluded.number
  WHERE version.number <> excluded.number;
