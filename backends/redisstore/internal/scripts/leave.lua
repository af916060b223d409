-- Leave: the room goes to waiters in the same step, so a holder that dies after its release leaves no waiter asleep.
-- ARGV[1] token  ARGV[2] channel for whoever watches, empty for none  ARGV[3] how long a reservation lasts in ms
-- ARGV[4] empty if receivers are not counted
if foreign or redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
holds = holds - 1
settle(0)
room(ARGV[2], ARGV[3], ARGV[4])
return 1
