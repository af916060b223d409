-- This script implements TransferHold: a hold goes from one token to another, and keeps its slot.
-- KEYS see holds.lua and counter.lua
-- ARGV[1] the token that has the hold  ARGV[2] the token that gets it
-- ARGV[3] the TTL in ms  ARGV[4] how to number: see draw.lua
-- ARGV[5] the group
-- The reply to a grant is that of enter.lua.
-- {0, 0, holds, 0, ''} neither token has a hold
-- {0, left in ms, 0, 0, ''} the value is no lock
local there, from = not foreign and endOf(ARGV[2]), not foreign and endOf(ARGV[1])
if not there and not from then
  local left = oldest and redis.call('PTTL', KEYS[1])
  if foreign or left == -1 then
    return {0, left, 0, 0, ''}
  end
  return {0, 0, holds, 0, ''}
end
if group ~= ARGV[5] then
  return redis.error_reply('LOCKSTEP another strategy, or the other side of a read-write lock, took this lock: resume it with that one')
end
local number, problem = draw(there or holds > 1, ARGV[4])
if problem then
  return problem
end
local score = there or from
local at, slot = math.max(math.floor(score), now + ARGV[3]), slotOf(score)
settle(at)
-- ZADD comes before ZREM: if ZADD is not permitted, the hold stays where it is.
redis.call('ZADD', KEYS[1], scoreOf(at, slot), ARGV[2])
if not there then
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return {1, holds, number, slot - 1}
