-- What enter, renew, leave and withdraw begin with: the holds of the lock, without those that have ended. The lock is a sorted
-- set: a member for each hold, by the ms at which it ends, by this server's clock. A group that is not empty is one more
-- member, which has no end.
-- KEYS[1] the lock. TIME before a write needs Redis 5.
local time = redis.call('TIME') -- once: it goes on inside a script before Redis 7.2
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark = '\0group:'

-- A sorted set of other software has no times in it: 1e11 ms is in 1973.
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if oldest then -- the embedded server's Lua does not read inf
  oldest = tonumber(oldest) or oldest == 'inf' and math.huge or -math.huge
end
local foreign = oldest and oldest < 1e11

local holds, group, ended = 0, '', not oldest
local before = '(' .. string.format('%.0f', now) -- a hold lives until the end of its ms, as a key does
if oldest and not foreign then
  if oldest < now then -- a script that has written may go on to write on a server that is out of memory
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', before)
    ended = true
  end
  holds = redis.call('ZCARD', KEYS[1])
  local last = redis.call('ZRANGE', KEYS[1], -1, -1)[1]
  if last and string.sub(last, 1, #mark) == mark then
    group, holds = string.sub(last, #mark + 1), holds - 1
  end
end

-- A hold with a slot has it in its score, behind the point: number 0 is 1/2048 ms. A number below 2^42 has room for it, which the
-- time in ms is until 2109. Whole scores have none.
local function slotOf(score)
  return score % 1 * 2048
end

local function scoreOf(at, slot)
  return string.format('%.17g', at + slot / 2048)
end

-- freeSlot is the lowest that no hold has.
local function freeSlot()
  local taken, slot = {}, 1
  local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 2, #all, 2 do
    if all[i] ~= 'inf' then
      taken[slotOf(all[i])] = true
    end
  end
  while taken[slot] do
    slot = slot + 1
  end
  return slot
end

-- live lets a key live until its last member has ended.
local function live(key, last)
  redis.call('PEXPIREAT', key, string.format('%.0f', math.floor(last) + 1)) -- not in the ms that still counts
end

-- settle lets the lock live as long as its last hold, of which one ends at that ms, and removes what is left of a lock without
-- holds. All that it calls is permitted to a server that is out of memory, and a script that has written may go on to write
-- what is not.
local function settle(at)
  if holds == 0 then
    redis.call('DEL', KEYS[1])
    return
  end
  local last = redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES') -- the mark of a group comes last, with the score inf
  for i = 2, #last, 2 do
    if last[i] ~= 'inf' then
      at = math.max(at, tonumber(last[i]))
    end
  end
  live(KEYS[1], at)
end

