-- How a waiter joins the queue. It follows score.lua.
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
    if last > 0 and last % 4096 >= 2048 then -- a late waiter may have a later ticket
      local many = redis.call('ZCOUNT', KEYS[2], '-inf', '(0')
      local it = many > 0 and redis.call('ZRANGE', KEYS[2], many - 1, many - 1, 'WITHSCORES')[2]
      ticket = math.max(ticket, it and ticketOf(tonumber(it)) + 1 or 0)
    end
  elseif score < 0 or score % 2048 ~= tonumber(keep) then
    ticket = ticketOf(score)
    again = (score < 0 or score % 4096 >= 2048) and 2048 or 0
  end
  if ticket > 0 then
    score = ticket * 4096 + again + keep
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
  local place = redis.pcall('ZCOUNT', KEYS[2], 0, score)
  return type(place) == 'number' and place or redis.call('ZRANK', KEYS[2], me) + 1
end
