-- All scripts that number grants begin with counter.lua and then this file: SetNXNumbered,
-- SetNXFenced, and Enter, Transfer and TransferHold with a number.
-- draw returns the number of a grant as a string, or nil and an error to reply.
-- value is nil or false for a new number. Otherwise the lock keeps its last number, if it has one.
-- If keep is empty, a new number is the last number plus one, and the counter has no expiry.
-- Otherwise a new number is the time of this server in microseconds, or the last number plus one if
-- that is greater. The counter then outlives its last use by keep ms.
-- Before Redis 5, a script can't write after TIME.
local function draw(value, keep)
  local number, problem = count()
  if problem then
    return nil, problem
  end
  local now = 0
  if keep ~= '' then
    local time = redis.call('TIME') -- once: before Redis 7.2, the time goes on during a script
    now = time[1] * 1000000 + time[2]
  end
  if not value or number == 0 then
    number = math.max(number + 1, now)
  end
  if number >= 9007199254740992 then
    return nil, redis.error_reply('LOCKSTEP the counter of the lock has come to its end at 2^53')
  end
  local text = string.format('%.0f', number) -- tostring would round
  if keep == '' then
    redis.call('SET', KEYS[#KEYS], text)
  else -- a number ahead of the clock is kept until the clock reaches it, and for keep ms more
    local ahead = math.ceil(math.max(0, number - now) / 1000)
    redis.call('SET', KEYS[#KEYS], text, 'PX', string.format('%.0f', keep + ahead))
  end
  return text
end

