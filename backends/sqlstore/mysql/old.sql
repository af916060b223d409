-- Keys that nobody has used for an hour, and whose numbers are no longer needed.
SELECT `key` FROM lockstep_lock
WHERE GREATEST(expires, kept) < {now} - 3600000000 LIMIT 100
