-- SetNX, and a new ownership gets the next number in the same step.
-- KEYS[1] the lock  KEYS[2] its counter  ARGV[1] token  ARGV[2] ttl in ms
-- ARGV[3] how to number: empty for the last number and one more, in a counter that does not expire; else by this server's
--         clock, in a counter that outlives its last use by so many ms. Before Redis 5, TIME allows no write after it.
-- {1, number} granted, the number as a string; {0, left in ms} refused, left is -1 for a value without expiry
local value = redis.call('GET', KEYS[1])
if value and value ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[1])}
end
local number, problem = count()
if problem then
  return problem
end
local now = 0
if ARGV[3] ~= '' then
  local time = redis.call('TIME') -- once: it goes on inside a script before Redis 7.2
  now = time[1] * 1000000 + time[2]
end
if not value or number == 0 then
  number = math.max(number + 1, now)
end
if number >= 9007199254740992 then
  return redis.error_reply('LOCKSTEP the counter of the lock has come to its end at 2^53')
end
local text = string.format('%.0f', number) -- tostring would round
if ARGV[3] == '' then
  redis.call('SET', KEYS[2], text)
else -- a number ahead of the clock is kept until the clock has come so far, and for the retention more
  local ahead = math.ceil(math.max(0, number - now) / 1000)
  redis.call('SET', KEYS[2], text, 'PX', string.format('%.0f', ARGV[3] + ahead))
end
grant(value, ARGV[1], ARGV[2])
return {1, text}
