-- Renew: only a hold that has not ended, and never sooner than it would have.
-- ARGV[1] token  ARGV[2] ttl in ms
if not owner then
  return 0
end
local there = ends['hold:' .. ARGV[1]]
if there then
  hold(ARGV[1], ARGV[2])
end
settle()
return there and 1 or 0
