-- The scripts that use a queue begin with this file, before queue.lua and admit.lua.
-- KEYS[2] the queue: a sorted set of waiters. The score of a waiter is one of:
--   ticket + keep/4096 (+ 1/2)        the waiter is in line. Tickets are given in the order of arrival.
--                                     keep is how long a reservation for the waiter lasts, in ms; 0 is
--                                     the shortest. With 1/2 the waiter was late before.
--   (ticket - 2^30) * 2^22 + noted    the waiter is late: it has had a reservation. noted is when a
--                                     script has noted that, in seconds modulo 2^22; 0: none has yet
-- Late waiters have negative scores, so they are first in the set, and those in line follow. To older
-- versions all of them are in line.
local span, lateLimit = 4194304, 30
local someAreLate = false

local function ticketOf(score)
  return math.floor(score < 0 and score / span + 1073741824 or score)
end

-- keepOf returns how long a reservation lasts for a waiter in line, in ms.
local function keepOf(score, shortest)
  return math.max(math.min(score % 0.5 * 4096, 2000), tonumber(shortest))
end

local function put(member, score)
  redis.call('ZADD', KEYS[2], string.format('%.17g', score), member)
end

-- leave takes the head out of the queue. It is the first to write: once a script has written, even a
-- server that is out of memory lets it go on.
local function leave(member)
  return type(redis.pcall('ZREM', KEYS[2], member)) == 'number'
end

-- late puts a waiter back that has just been given a reservation. If the waiter was late already, or
-- its ticket is too large for a late one, its position is lost.
local function late(member, score)
  local it = (ticketOf(score) - 1073741824) * span
  if score >= 0 and it < 0 then
    put(member, it)
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
    if noted == 0 then
      put(list[i], list[i + 1] + seconds)
    elseif (seconds - noted) % span > lateLimit then
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
    put(me, ticketOf(tonumber(score)) + 0.5)
  end
  if not busy then
    tidy()
  end
  return behind()
end

-- lost tells all waiters of the lock that the position of me was lost. Theirs may be lost too, and then
-- nobody wakes them. channel is that of all stores; empty: me had no position to lose.
local function lost(me, channel)
  if channel ~= '' then
    redis.pcall('PUBLISH', channel, 'l' .. string.match(me, '^[^@]*') .. '@' .. KEYS[1])
  end
end

-- stand puts me in line, unless it is there already. keep is as in keepOf. The queue lives for ms.
-- channel is as in lost.
local function stand(me, keep, ms, channel)
  local score = redis.call('ZSCORE', KEYS[2], me)
  score = score and tonumber(score)
  local ticket, again = 0, 0
  if not score then
    lost(me, channel)
    local last = tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0)
    ticket = ticketOf(last) + 1
    if last % 1 >= 0.5 then -- a late waiter may have a later ticket
      local many = redis.call('ZCOUNT', KEYS[2], '-inf', '(0')
      local it = many > 0 and redis.call('ZRANGE', KEYS[2], many - 1, many - 1, 'WITHSCORES')[2]
      ticket = math.max(ticket, it and ticketOf(tonumber(it)) + 1 or 0)
    end
  elseif score < 0 or score % 0.5 * 4096 ~= tonumber(keep) then
    ticket = ticketOf(score)
    again = (score < 0 or score % 1 >= 0.5) and 0.5 or 0
  end
  if ticket > 0 then
    score = ticket + again + keep / 4096
    put(me, score)
  end
  redis.call('PEXPIRE', KEYS[2], ms)
  return score
end

-- placeOf returns the position of a waiter with the score, from 1. 0: it has none, or is late.
local function placeOf(me, score)
  if not score or score < 0 then
    return 0
  end
  local place = redis.pcall('ZCOUNT', KEYS[2], 0, string.format('%.17g', score))
  return type(place) == 'number' and place or redis.call('ZRANK', KEYS[2], me) + 1
end

