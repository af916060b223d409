-- ExpireIf: only for the owner, and never sooner than it would have ended.
-- KEYS[1] the lock  ARGV[1] token  ARGV[2] ttl in ms
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
