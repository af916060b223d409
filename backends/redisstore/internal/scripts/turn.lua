-- The scripts of SetNXQueued and SetNXNumbered begin with grant.lua, unnumbered.lua or draw.lua, and
-- this file. In a hand-over the lock is reserved for the caller. Then the script ends here, and where
-- the caller is in no queue and need not look at it: every run of a script declares its functions anew.
-- KEYS and ARGV see enqueue.lua
local value, me = redis.call('GET', KEYS[1]), ARGV[3]
local mine = value and me ~= '' and value == 'lockstep:reserved:' .. me
local alone = not value and me == '' and ARGV[4] == ''
if mine or alone or value == ARGV[1] then
  local number, problem = draw(not mine and value, ARGV[10])
  if problem then
    return problem
  end
  if me ~= '' then
    redis.call('ZREM', KEYS[2], me) -- first: if it is not permitted, nothing is granted
  end
  grant(not mine and value, ARGV[1], ARGV[2])
  return {1, number, 0}
end
