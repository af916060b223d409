-- DeleteIf, and the wake in the same step: a holder that dies after its release leaves no waiter asleep.
-- KEYS[1] the lock  ARGV[1] token  ARGV[2] channel, empty for none
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  redis.call('PUBLISH', ARGV[2], '')
end
return 1
