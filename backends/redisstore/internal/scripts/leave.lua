-- Leave, and the wake in the same step if the lock is free then.
-- ARGV[1] token  ARGV[2] channel, empty for none
if not owner then
  return 0
end
local field = 'hold:' .. ARGV[1]
local there = ends[field]
if there then
  ends[field] = nil
  holds = holds - 1
  past[#past + 1] = field
end
settle()
if there and holds == 0 and ARGV[2] ~= '' then
  redis.call('PUBLISH', ARGV[2], '')
end
return there and 1 or 0
