-- The scripts of SetNXQueued and SetNXNumbered have this file after stand.lua. Somebody else has the
-- lock in most attempts of a waiter. Then the script ends here, as in turn.lua.
-- KEYS and ARGV see enqueue.lua
local function held()
  local place = 0
  if me ~= '' then
    place = placeOf(me, stand(me, ARGV[8], ARGV[7], ARGV[9]))
  end
  return {0, redis.call('PTTL', KEYS[1]), place, type(value) == 'string' and holder(value) or ''}
end
if value then
  return held()
end
