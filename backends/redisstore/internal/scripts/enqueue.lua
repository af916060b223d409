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
local value = redis.call('GET', KEYS[1])
local me, mine = ARGV[3], false
if value and me ~= '' and value == reserved .. me then
  value, mine = false, true
elseif not value and ARGV[4] ~= '' then
  local first = offer(me, ARGV[5], ARGV[6])
  value = first and first ~= me
end
if not value or value == ARGV[1] then
  local number, problem = draw(value, ARGV[10])
  if problem then
    return problem
  end
  if me ~= '' then
    -- first: if ZREM is not permitted, nothing is granted
    if redis.call('ZREM', KEYS[2], me) == 0 and not mine and not value then
      lost(me, ARGV[9])
    end
  end
  grant(value, ARGV[1], ARGV[2])
  return {1, number, 0}
end
local place = 0
if me ~= '' then
  place = placeOf(me, stand(me, ARGV[8], ARGV[7], ARGV[9]))
end
return {0, redis.call('PTTL', KEYS[1]), place, type(value) == 'string' and holder(value) or ''}
