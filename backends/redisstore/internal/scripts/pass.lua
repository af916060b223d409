-- This script implements DeleteIf with a queue. free.lua has compared the token, and found waiters.
-- The lock goes to the head of the queue in the same step, or becomes free.
-- KEYS see queue.lua
-- ARGV[1] the token  ARGV[2] the channel of those that watch
-- ARGV[3] how long a reservation lasts, in ms
-- ARGV[4] empty if PUBLISH does not count all receivers
let(ARGV[2], ARGV[3], ARGV[4], queued)
return 1
