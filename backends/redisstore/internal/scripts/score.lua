-- The scripts that use a queue begin with this file. place.lua, queue.lua and admit.lua follow, and
-- before them stand.lua where a waiter may join.
-- KEYS[2] the queue: a sorted set of waiters. The score of a waiter is one of:
--   ticket * 2^12 + keep (+ 2^11)     the waiter is in line. Tickets are given in the order of arrival.
--                                     They are no times: a clock that goes back would let a waiter in
--                                     ahead of others.
--                                     keep is how long a reservation for the waiter lasts, in ms; 0 is
--                                     the shortest. With 2^11 the waiter was late before.
--   (ticket - 2^30) * 2^22 + noted    the waiter is late: it has had a reservation. noted is when a
--                                     script has noted that, in seconds modulo 2^22; 0: none has yet
-- All are whole: a server reads and writes a fraction twice as slowly.
-- Late waiters have negative scores, so they are first in the set, and those in line follow. To older
-- versions all of them are in line.
local span = 4194304

local function ticketOf(score)
  return math.floor(score < 0 and score / span + 1073741824 or score / 4096)
end

local function put(member, score)
  redis.call('ZADD', KEYS[2], score, member)
end
