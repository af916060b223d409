-- The keys whose time has come to be looked at. A row that somebody has locked is left for the next sweep: a
-- transaction with a guard may be long. The time is not that of the other files, which no index can use: a
-- session that sets its time finds other keys, and what is done to them is judged by the right time. With
-- autocommit off, the rows would stay locked.
SELECT `key` FROM lockstep_lock WHERE @@autocommit AND look < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) ORDER BY look LIMIT ? FOR UPDATE SKIP LOCKED
