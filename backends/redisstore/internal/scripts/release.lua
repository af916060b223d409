-- This script implements DeleteIf without a queue. It sends the wake-up in the same step.
-- So a holder that dies after its release leaves no waiter asleep.
-- KEYS[1] the lock  ARGV[1] the token  ARGV[2] the channel of those that watch, empty for none
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  redis.call('PUBLISH', ARGV[2], '')
end
return 1
