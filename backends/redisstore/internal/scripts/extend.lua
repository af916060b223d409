-- This script implements ExpireIf.
-- It extends the lock only for its holder, and never shortens the life of the lock.
-- KEYS[1] the lock  ARGV[1] the token  ARGV[2] the TTL in ms
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
