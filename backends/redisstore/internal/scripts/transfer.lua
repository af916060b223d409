-- This script implements Transfer: the lock goes from one token to another.
-- KEYS[1] the lock  KEYS[2] its counter, if it is numbered
-- ARGV[1] the token that has the lock  ARGV[2] the token that gets it
-- ARGV[3] how long the key lives, in ms  ARGV[4] how to number: see draw.lua
-- {1, number} granted; number is a string, or 0 for none
-- {0, left in ms, holder} held; left is -1 for a value without expiry
local value = redis.call('GET', KEYS[1])
if not value then
  return {0, 0, ''}
end
if value ~= ARGV[1] and value ~= ARGV[2] then
  return {0, redis.call('PTTL', KEYS[1]), holder(value)}
end
local number, problem = draw(value == ARGV[2], ARGV[4])
if problem then
  return problem
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', math.max(ARGV[3], redis.call('PTTL', KEYS[1])))
return {1, number}
