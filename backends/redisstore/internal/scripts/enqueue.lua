-- This script implements SetNXQueued and SetNXNumbered for a caller that uses the queue.
-- It keeps the position of a waiter.
-- KEYS see queue.lua and counter.lua
-- ARGV[1] the token  ARGV[2] the TTL in ms
-- ARGV[3] the member of the queue for the waiter, empty if the caller does not wait
-- ARGV[4] not empty: only the head of the queue gets a free lock
-- ARGV[5] how long a reservation lasts at least, in ms
-- ARGV[6] empty if PUBLISH does not count all receivers
-- ARGV[7] how long the queue lives without an attempt, in ms
-- ARGV[8] how long a reservation for the caller lasts, in ms, 0 for the shortest
-- ARGV[9] the channel of all stores if the waiter must still have a position, otherwise empty
-- ARGV[10] how to number a grant, if it is numbered: see draw.lua
-- {1, number, 0} granted; number is a string, or 0 for none
-- {0, left in ms, position, holder} held; left is -1 for a value without expiry
if not value and ARGV[4] ~= '' then
  local first = offer(me, ARGV[5], ARGV[6])
  value = first and first ~= me
end
if value then
  return held()
end
local number, problem = draw(nil, ARGV[10])
if problem then
  return problem
end
if me ~= '' and redis.call('ZREM', KEYS[2], me) == 0 then -- first: see turn.lua
  lost(me, ARGV[9])
end
grant(nil, ARGV[1], ARGV[2])
return {1, number, 0}
