-- RaiseFence: only for the owner, and never down. The counters of a quorum's nodes have no expiry.
-- KEYS[1] the lock  KEYS[2] its counter  ARGV[1] token  ARGV[2] the number
-- 1 done, or it is so already; 0 not
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
