-- Who is the head of the queue. This file follows score.lua.
local lateLimit = 30
local queueLife = 600000 -- in ms, without an attempt: as in queued.go
local someAreLate = false

-- keepOf returns how long a reservation lasts for a waiter in line, in ms.
local function keepOf(score, shortest)
  return math.max(math.min(score % 2048, 2000), tonumber(shortest))
end

-- leave takes the head out of the queue. It is the first to write: once a script has written, even a
-- server that is out of memory lets it go on.
local function leave(member)
  return type(redis.pcall('ZREM', KEYS[2], member)) == 'number'
end

-- late puts a waiter back that has just been given a reservation. If the waiter was late already, or
-- its ticket is too large for a late one, its position is lost. other is the next waiter in line; nil if
-- none is known. Then the queue may have been empty, and its life begins anew.
local function late(member, score, other)
  local it = (ticketOf(score) - 1073741824) * span
  if score >= 0 and it < 0 then
    put(member, it)
    if not other then
      redis.pcall('PEXPIRE', KEYS[2], queueLife)
    end
  end
end

-- lates returns some of the late waiters, and how many there are. Where ZCOUNT is not permitted they
-- are in line.
local function lates(some, ...)
  local many = someAreLate and redis.pcall('ZCOUNT', KEYS[2], '-inf', '(0') or 0
  many = type(many) == 'number' and many or 0
  return many > 0 and redis.call('ZRANGE', KEYS[2], 0, math.min(many, some) - 1, ...) or {}, many
end

-- tidy notes which waiters are late, and removes those that have made no attempt for lateLimit
-- seconds since. It looks at a few, so that many dead waiters do not make it slow.
local function tidy()
  local list = lates(16, 'WITHSCORES')
  local time = list[1] and redis.pcall('TIME')
  for i = 1, time and not time.err and #list or 0, 2 do
    local seconds, noted = math.max(time[1] % span, 1), list[i + 1] % span
    local since = (seconds - noted) % span
    if noted == 0 or since > span / 2 then -- the clock has gone back
      put(list[i], list[i + 1] - noted + seconds)
    elseif since > lateLimit then
      redis.call('ZREM', KEYS[2], list[i])
    end
  end
end

-- behind returns the first two waiters in line, each with its score.
local function behind()
  local _, many = lates(1)
  return redis.call('ZRANGE', KEYS[2], many, many + 1, 'WITHSCORES')
end

-- heads returns the first two waiters in line, each with its score. If me is late, it is in line
-- again. list is what ZRANGE has returned of the queue; nil: nobody has asked. There are late waiters
-- whenever there are reservations; busy says so, and spares tidy.
local function heads(me, busy, list)
  list = list or redis.call('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
  if not list[2] or tonumber(list[2]) >= 0 then
    return list
  end
  someAreLate = true
  local score = me ~= '' and redis.call('ZSCORE', KEYS[2], me)
  if score and tonumber(score) < 0 then
    put(me, ticketOf(tonumber(score)) * 4096 + 2048)
  end
  if not busy then
    tidy()
  end
  return behind()
end
