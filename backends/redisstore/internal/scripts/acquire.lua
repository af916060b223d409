-- SetNX where the plain SET NX PX was refused: by another value, or by our own after a reply got lost.
-- KEYS[1] the lock  ARGV[1] token  ARGV[2] ttl in ms
-- {1, 0} granted; {0, left in ms, holder} refused, left is -1 for a value without expiry
local value = redis.call('GET', KEYS[1])
if value and value ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[1]), holder(value)}
end
grant(value, ARGV[1], ARGV[2])
return {1, 0}
