-- Renew: only a hold that has not ended, and never sooner than it would have. No other hold lives longer by it.
-- ARGV[1] token  ARGV[2] ttl in ms
local there = not foreign and redis.call('ZSCORE', KEYS[1], ARGV[1])
if not there then
  return 0
end
local at = math.max(math.floor(there), now + ARGV[2])
settle(at) -- first: a hold that is there is renewed on a server that is out of memory as well
redis.call('ZADD', KEYS[1], scoreOf(at, slotOf(there)), ARGV[1])
return 1
