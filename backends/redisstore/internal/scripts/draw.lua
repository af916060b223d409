-- What a numbered grant begins with: draw gives its number as a string, or nil and an error to reply. A value that is there
-- already keeps its number. keep is empty for the last number and one more, in a counter that does not expire; else the number is
-- the time of this server, and the counter outlives its last use by so many ms. Before Redis 5, TIME allows no write after it.
local function draw(value, keep)
  local number, problem = count()
  if problem then
    return nil, problem
  end
  local now = 0
  if keep ~= '' then
    local time = redis.call('TIME') -- once: it goes on inside a script before Redis 7.2
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
  else -- a number ahead of the clock is kept until the clock has come so far, and for the retention more
    local ahead = math.ceil(math.max(0, number - now) / 1000)
    redis.call('SET', KEYS[#KEYS], text, 'PX', string.format('%.0f', keep + ahead))
  end
  return text
end

