-- The end of WatchQueued for shared holds: the waiter leaves the queue. Its reservation, or the room
-- that it kept from others as the head of the queue, goes to the next waiters. If they do not fit,
-- the new head of the queue is woken: the head looks when a lease ends.
-- ARGV[1] the member of the queue  ARGV[2] the channel of those that watch, empty for none
-- ARGV[3] how long a reservation lasts, in ms  ARGV[4] empty if PUBLISH does not count all receivers
local wasHead = heads('', reserved > 0)[1] == ARGV[1]
redis.call('ZREM', KEYS[2], ARGV[1])
local had = redis.call('ZREM', KEYS[3], ARGV[1])
reserved = reserved - had
local before = reserved
if had == 1 or wasHead and holds + reserved > 0 then
  room(ARGV[2], ARGV[3], ARGV[4])
end
local next = wasHead and reserved == before and heads('', reserved > 0)[1]
if next then
  remind(next)
end
return had
