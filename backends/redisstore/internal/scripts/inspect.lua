-- This script implements Inspect. It writes nothing, and its reply has no token.
-- KEYS[1] the lock  KEYS[2] its queue  KEYS[3] its reservations  KEYS[4] its counter
-- ARGV[1] how many holds, and how many waiters, to list at most
-- The reply is a list of:
--   the type of the lock, or reserved for a string that is a reservation
--   left in ms
--   {label, print, 1 if it is a token} for a string
--   {{label, print, 1 if it is a token, score}, ...} of the holds
--   how many holds there are
--   their group
--   1 if the sorted set is no lock: then without holds
--   how many reservations there are
--   {label, ...} of the waiters in the queue
--   how many waiters there are; -1: what is stored in place of the queue is none
--   the value of the counter
--   the time of the server in ms
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local latest = '9007199254740991' -- below the score of the mark of a group
-- tell returns what Inspect tells of a token.
local function tell(token, score)
  return {holder(token), printOf(token), isToken(token) and 1 or 0, score}
end

local kind, value, holds, many, group, foreign = redis.call('TYPE', KEYS[1]).ok, '', {}, 0, '', 0
local left = redis.call('PTTL', KEYS[1])
if kind ~= 'zset' then
  value = textOf(kind)
  local reserved = 'lockstep:reserved:' -- see queue.lua
  if string.sub(value, 1, #reserved) == reserved then
    kind = 'reserved'
  end
elseif left == -1 or redis.call('ZCOUNT', KEYS[1], '-inf', '(100000000000') > 0 then -- see holds.lua
  foreign = 1 -- its members may be of any size
else
  local list = redis.call('ZRANGEBYSCORE', KEYS[1], now, latest, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
  for i = 1, #list, 2 do
    holds[#holds + 1] = tell(list[i], list[i + 1])
  end
  many = redis.call('ZCOUNT', KEYS[1], now, latest)
  local mark, last = '\0group:', redis.call('ZRANGE', KEYS[1], -1, -1)[1]
  if many > 0 and string.sub(last, 1, #mark) == mark then
    group = string.sub(last, #mark + 1)
  end
end
-- What other software has stored under the names beside the lock hides no lock.
local reserved, line = redis.pcall('ZCOUNT', KEYS[3], now, '+inf'), redis.pcall('ZRANGE', KEYS[2], 0, ARGV[1] - 1)
local number, queue, waiting, has = redis.pcall('GET', KEYS[4]), {}, 0, {}
for _, reply in ipairs({reserved, line, number or ''}) do
  local failed = type(reply) == 'table' and reply.err
  if failed and not string.find(failed, 'WRONGTYPE', 1, true) then
    return reply
  elseif failed and reply ~= number then
    reserved, waiting = 0, -1
  end
end
if waiting == 0 then
  -- Waiters with a reservation are still in the queue: see place.lua.
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], now, '+inf', 'LIMIT', 0, ARGV[1])) do
    has[member] = true
  end
  if kind == 'reserved' then
    has[string.sub(value, 19)] = true
  end
  for _, member in ipairs(line) do
    if not has[member] then
      queue[#queue + 1] = holder(string.match(member, '^[^@]*'))
    end
  end
  local late = redis.call('ZCOUNT', KEYS[2], '-inf', '(0') - reserved - (kind == 'reserved' and 1 or 0)
  waiting = redis.call('ZCOUNT', KEYS[2], 0, '+inf') + math.max(late, 0)
end
return {
  kind, left, tell(value), holds, many, group, foreign,
  reserved, queue, waiting,
  type(number) == 'string' and number or '', now,
}
