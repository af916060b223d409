-- SetNX, and a new ownership gets the next number in the same step.
-- KEYS[1] the lock  KEYS[2] its counter  ARGV[1] token  ARGV[2] ttl in ms  ARGV[3] how to number: see draw.lua
-- {1, number} granted, the number as a string; {0, left in ms, holder} refused, left is -1 for a value without expiry
local value = redis.call('GET', KEYS[1])
if value and value ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[1]), holder(value)}
end
local number, problem = draw(value, ARGV[3])
if problem then
  return problem
end
grant(value, ARGV[1], ARGV[2])
return {1, number}
