-- One who waits no more gives up his place; what was reserved for him goes to the next.
-- ARGV[1] the member of the queue  ARGV[2] channel for whoever watches  ARGV[3] how long a reservation lasts in ms
-- ARGV[4] empty if receivers are not counted
redis.call('ZREM', KEYS[2], ARGV[1])
local value = redis.call('GET', KEYS[1])
if value == reserved .. ARGV[1] then
  let(ARGV[2], ARGV[3], ARGV[4])
  return 1
end
if value and string.sub(value, 1, #reserved) == reserved then
  local next = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if next then
    send('n', next) -- it may have been his to look whether the lock was taken
  end
end
return 0
