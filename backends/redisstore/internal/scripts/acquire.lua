-- This script implements SetNX after its plain SET NX PX has found that the key is not free.
-- The key held another value, or the caller's own token after a reply was lost. By now the key may
-- be free.
-- KEYS[1] the lock  ARGV[1] the token  ARGV[2] the TTL in ms
-- {1, 0} granted
-- {0, left in ms, holder} held; left is -1 for a value without expiry
local value = redis.call('GET', KEYS[1])
if value and value ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[1]), holder(value)}
end
grant(value, ARGV[1], ARGV[2])
return {1, 0}
