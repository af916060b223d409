-- This script implements Leave. The room goes to waiters in the same step.
-- So a holder that dies after its release leaves no waiter asleep.
-- KEYS see holds.lua and admit.lua
-- ARGV[1] the token  ARGV[2] the channel of those that watch, empty for none
-- ARGV[3] how long a reservation lasts, in ms
-- ARGV[4] empty if PUBLISH does not count all receivers
if foreign or forever and not endOf(ARGV[1]) or redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
holds = holds - 1
settle(0)
room(ARGV[2], ARGV[3], ARGV[4])
return 1
