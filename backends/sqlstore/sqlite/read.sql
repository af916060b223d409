-- The row of a key, with the time of the same moment. Without a row the kind is -1.
SELECT now.us, 1, coalesce(kind, -1), coalesce(value, x''), coalesce(expires, 0), coalesce(holds, x''), coalesce(last, 0), coalesce(kept, 0)
FROM (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 AS us) AS now LEFT JOIN main.lockstep_lock ON key = ?
