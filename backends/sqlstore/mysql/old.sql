-- Keys that nobody has used for an hour, and whose numbers are no longer needed.
SELECT `key` FROM lockstep_lock
WHERE GREATEST(expires, kept) < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - 3600000000 LIMIT 100
