-- One who waits no more gives up his place; what was reserved for him goes to the next.
-- ARGV[1] the member of the queue  ARGV[2] channel for whoever watches, empty for none
-- ARGV[3] how long a reservation lasts in ms  ARGV[4] empty if receivers are not counted
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('ZREM', KEYS[3], ARGV[1]) == 1 then
  reserved = reserved - 1
  room(ARGV[2], ARGV[3], ARGV[4])
  return 1
end
if reserved > 0 then
  local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if head then
    remind(head) -- it may have been his to look whether the reservations were taken
  end
end
return 0
