-- The script of Evict is this file between queue.lua and holds.lua, and evicthold.lua at its end.
-- This part serves single locks only.
-- KEYS see queue.lua and admit.lua
-- ARGV[1] the print of the token  ARGV[2] what closes the lock in its place, empty to open it at once
-- ARGV[3] not empty: also evict what is not a token
-- ARGV[4] the channel of those that watch  ARGV[5] how long a reservation lasts, in ms
-- ARGV[6] empty if PUBLISH does not count all receivers
-- 1 evicted, 0 there is no such token, 2 it may be no lock
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'zset' then
  local value, left = textOf(kind), redis.call('PTTL', KEYS[1])
  if left == -2 or printOf(value) ~= ARGV[1] or string.sub(value, 1, #reserved) == reserved then
    return 0
  end
  if ARGV[3] == '' and not isToken(value) or left == -1 and not (ARGV[3] ~= '' and ARGV[2] == '') then
    return 2
  end
  if ARGV[2] == '' then
    let(ARGV[4], ARGV[5], ARGV[6])
  else
    redis.call('SET', KEYS[1], ARGV[2], 'PX', math.max(left, 1))
  end
  return 1
end
