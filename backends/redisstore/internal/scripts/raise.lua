-- This script implements RaiseFence: the number changes only for the holder, and never goes down.
-- The counters of the nodes of a quorum have no expiry.
-- KEYS[1] the lock  KEYS[2] its counter  ARGV[1] the token  ARGV[2] the number
-- 1 done, or the counter had the number already; 0 not done
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local number, problem = count()
if problem then
  return problem
end
if number > tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2])
return 1
