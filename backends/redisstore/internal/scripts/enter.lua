-- This script implements Enter.
-- KEYS see holds.lua, admit.lua and counter.lua
-- ARGV[1] the token  ARGV[2] the TTL in ms  ARGV[3] the group  ARGV[4] the limit, 0 for none
-- ARGV[5] the member of the queue for the waiter, empty if the caller does not wait
-- ARGV[6] not empty: the waiters before the caller in the queue go first
-- ARGV[7] how long a reservation lasts at least, in ms
-- ARGV[8] empty if PUBLISH does not count all receivers
-- ARGV[9] how long the queue lives without an attempt, in ms
-- ARGV[10] not empty: the hold gets a slot
-- ARGV[11] how long a reservation for the caller lasts, in ms, 0 for the shortest
-- ARGV[12] the channel of all stores if the waiter must still have a position, otherwise empty
-- ARGV[13] how to number a grant, if it is numbered: see draw.lua
-- {1, holds, number, slot} granted; number is a string, or 0 for none; slot is -1 for none
-- {0, left in ms, holds, position, holder} held; left is -1 for a value without expiry
-- holder is the label of a hold that must end before the caller can enter.
if oldest then
  local left = redis.call('PTTL', KEYS[1])
  if foreign or left == -1 then -- other software wrote the value, or removed its expiry
    return {0, left, 0, 0, ''}
  end
end
local token, me, limit = ARGV[1], ARGV[5], tonumber(ARGV[4])
local there = redis.call('ZSCORE', KEYS[1], token)
local mine = me ~= '' and reserved > 0 and redis.call('ZREM', KEYS[3], me) == 1
if mine then
  reserved = reserved - 1
end
local before -- the waiter that goes first
if ARGV[6] ~= '' and not there and not mine then
  before = admit(me, ARGV[7], ARGV[8])
end
local enters = there or not before and fits(ARGV[3], limit)
-- Later reservations have counted the caller's own reservation. So only holds can keep it out.
if mine and not there then
  enters = holds == 0 or ARGV[3] == group and (limit == 0 or holds < limit)
end
if not enters then
  -- many is how many holds and reservations must end before the caller can enter.
  local many = holds + reserved
  if ARGV[3] == group and limit > 0 then
    many = math.max(many - limit + 1, 1)
  end
  local at, its = now, ''
  if many <= reserved then -- reservations nearly always end before holds
    at = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2] or now
  else
    local last = redis.call('ZRANGE', KEYS[1], many - reserved - 1, many - reserved - 1, 'WITHSCORES')
    at, its = last[2] or now, holder(last[1] or '')
  end
  local score = me ~= '' and stand(me, ARGV[11], ARGV[9], mine and '' or ARGV[12])
  if ended or mine then
    admit('', ARGV[7], ARGV[8])
    if me ~= '' then
      score = tonumber(redis.call('ZSCORE', KEYS[2], me) or -1)
    end
  end
  local place = placeOf(me, score)
  return {0, math.max(at + 1 - now, 1), holds, place, its}
end
local number, problem = draw(holds > 0, ARGV[13])
if problem then
  return problem
end
if me ~= '' then
  -- first: if ZREM is not permitted, nothing is granted
  if redis.call('ZREM', KEYS[2], me) == 0 and not mine and not there then
    lost(me, ARGV[12])
  end
end
if holds == 0 and oldest then
  redis.call('DEL', KEYS[1]) -- the mark of a group that has ended
end
local at, slot = now + ARGV[2], 0
if there then
  at, slot = math.max(math.floor(there), at), slotOf(there)
elseif ARGV[10] ~= '' then
  slot = freeSlot()
end
local score = scoreOf(at, slot)
-- One command adds the hold and the mark. So a server that is out of memory adds both or neither.
if holds == 0 and ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[1], score, token, 'inf', mark .. ARGV[3])
else
  redis.call('ZADD', KEYS[1], score, token)
end
if not there then
  holds = holds + 1
end
if holds + reserved == 1 then
  group = ARGV[3]
end
local ok, permission = pcall(settle, at)
if not ok then -- PEXPIREAT may not be permitted, and then the hold would never end
  if holds == 1 then
    redis.call('DEL', KEYS[1])
  elseif not there then
    redis.call('ZREM', KEYS[1], token)
  end
  error(permission, 0)
end
if ended then -- there may be room for waiters
  admit('', ARGV[7], ARGV[8])
end
return {1, holds, number, slot - 1}
