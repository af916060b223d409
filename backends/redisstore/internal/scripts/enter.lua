-- Enter: for a free lock, for its owner, and for a hold that is there already.
-- ARGV[1] owner, empty for nobody  ARGV[2] token  ARGV[3] ttl in ms
-- {1, holds} granted; {0, left in ms} refused, left is -1 for a key without expiry
if #fields > 0 then
  local left = redis.call('PTTL', KEYS[1])
  if not owner or left == -1 then -- not written by these scripts, or changed since by someone else
    return {0, left}
  end
  local mine = owner == ARGV[1] and owner ~= ''
  if holds > 0 and not mine and not ends['hold:' .. ARGV[2]] then
    return {0, latest() + 1 - now}
  end
  if holds == 0 then
    redis.call('DEL', KEYS[1])
    past, owner = {}, nil
  end
end
local field, till = hold(ARGV[2], ARGV[3])
if owner then
  redis.call('HSET', KEYS[1], field, till)
  settle()
  return {1, holds}
end
redis.call('HSET', KEYS[1], 'lockstep:owner', ARGV[1], field, till) -- first: a server that is out of memory refuses it, and nothing is done
local ok, problem = pcall(settle)
if not ok then -- it may not be permitted, and the lock would not end
  redis.call('DEL', KEYS[1])
  error(problem, 0)
end
return {1, holds}
