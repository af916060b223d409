-- The end of WatchQueued: the waiter leaves the queue of a single lock. A reservation for it goes to
-- the next waiter. The waiter that becomes the head of the queue is woken: the head looks when the
-- lease ends.
-- ARGV[1] the member of the queue  ARGV[2] the channel of those that watch
-- ARGV[3] how long a reservation lasts, in ms  ARGV[4] empty if PUBLISH does not count all receivers
local head = heads('', false)[1]
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('GET', KEYS[1]) == reserved .. ARGV[1] then
  let(ARGV[2], ARGV[3], ARGV[4])
  return 1
end
local next = head == ARGV[1] and heads('', false)[1]
if next then
  send('n', next)
end
return 0
