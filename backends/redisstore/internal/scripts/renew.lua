-- Renew: only a hold that has not ended, and never sooner than it would have.
-- ARGV[1] token  ARGV[2] ttl in ms
if not owner then
  return 0
end
local there = ends['hold:' .. ARGV[1]]
local field, till
if there then
  field, till = hold(ARGV[1], ARGV[2])
end
settle() -- first: a hold that is there is renewed on a server that is out of memory as well
if there then
  redis.call('HSET', KEYS[1], field, till)
end
return there and 1 or 0
