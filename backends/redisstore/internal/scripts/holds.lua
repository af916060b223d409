-- The scripts of Enter, Renew, Leave and TransferHold, and withdraw.lua, begin with this file.
-- It serves shared holds only. It reads the holds of the lock, and removes those that have ended.
-- The lock is a sorted set. Each hold is a member. Its score is the ms at which the hold ends, by
-- the clock of this server. If the group is not empty, the set has one more member, the mark of the
-- group, which has no end.
-- KEYS[1] the lock
-- A script that writes after TIME needs Redis 5.
local time = redis.call('TIME') -- once: before Redis 7.2, the time goes on during a script
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark = '\0group:'

-- A sorted set of other software has no times as scores: 1e11 ms is in 1973.
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if oldest then -- the Lua of the embedded server does not read inf
  oldest = tonumber(oldest) or oldest == 'inf' and math.huge or -math.huge
end
local foreign = oldest and oldest < 1e11
-- A lock has an expiry. A queue of jobs has none, and may have times as scores: what is due stays.
local forever = oldest and not foreign and oldest < now and redis.call('PTTL', KEYS[1]) == -1

local holds, group, ended = 0, '', not oldest
-- A hold lives until the end of its ms, as a key does.
local before = '(' .. string.format('%.0f', now)
if oldest and not foreign then
  -- Nothing is written if no hold has ended. Once a script has written, even a server that is out
  -- of memory lets it go on to write.
  if oldest < now and not forever then
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', before)
    ended = true
  end
  holds = redis.call('ZCARD', KEYS[1])
  local last = redis.call('ZRANGE', KEYS[1], -1, -1)[1]
  if last and string.sub(last, 1, #mark) == mark then
    group, holds = string.sub(last, #mark + 1), holds - 1
  end
end

-- endOf returns the score of a hold that has not ended.
local function endOf(token)
  local score = redis.call('ZSCORE', KEYS[1], token)
  return not (forever and score and tonumber(score) < now) and score
end

-- The slot of a hold is the fraction of its score: slot 0 is 1/2048 ms. A score below 2^42 has room
-- for this fraction. The time in ms stays below 2^42 until 2109. A whole score has no slot. So a slot is
-- written, renewed and removed with its hold. A set of its own could disagree with the holds, and the
-- member can't have it: renewals and releases know the token alone.
local function slotOf(score)
  return score % 1 * 2048
end

local function scoreOf(at, slot)
  return string.format('%.17g', at + slot / 2048)
end

-- freeSlot returns the lowest slot that no hold has. 1 is slot 0.
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
  -- + 1, since the last member lives until the end of its ms.
  redis.call('PEXPIREAT', key, string.format('%.0f', math.floor(last) + 1))
end

-- settle lets the lock live as long as its last hold, and removes a lock without holds. at is the
-- new end of one of the holds in ms, or 0.
-- A server that is out of memory runs all commands of settle. Once a script has written, such a
-- server also runs the commands of the script that it would reject otherwise.
local function settle(at)
  if holds == 0 then
    redis.call('DEL', KEYS[1])
    return
  end
  -- Two members: the mark of a group is the last, with the score inf.
  local last = redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
  for i = 2, #last, 2 do
    if last[i] ~= 'inf' then
      at = math.max(at, tonumber(last[i]))
    end
  end
  live(KEYS[1], at)
end

