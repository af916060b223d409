-- This script implements SetNXFenced, and SetNXNumbered for a caller that does not use the queue.
-- A new ownership gets its number in the same step.
-- KEYS[1] the lock  KEYS[2] its counter
-- ARGV[1] the token  ARGV[2] the TTL in ms  ARGV[3] how to number: see draw.lua
-- {1, number} granted; number is a string
-- {0, left in ms, holder} held; left is -1 for a value without expiry
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
