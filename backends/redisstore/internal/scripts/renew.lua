-- This script implements Renew. It renews only a hold that has not ended, and never shortens its
-- life. It does not lengthen the life of any other hold.
-- KEYS see holds.lua
-- ARGV[1] the token  ARGV[2] the TTL in ms
local there = not foreign and endOf(ARGV[1])
if not there then
  return 0
end
local at = math.max(math.floor(there), now + ARGV[2])
settle(at) -- before ZADD, so that a server that is out of memory renews the hold too
redis.call('ZADD', KEYS[1], scoreOf(at, slotOf(there)), ARGV[1])
return 1
