-- The script of DeleteIf with a queue begins with this file. It serves single locks only.
-- Most queues are empty. Then the script ends here, before it declares the functions of queue.lua.
-- Every run of a script declares its functions anew.
-- KEYS[1] the lock  KEYS[2] its queue
-- ARGV[1] the token  ARGV[2] the channel of those that watch
-- 2 released, and nobody was in the queue  1 released  0 the lock does not hold the token
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local queued = redis.pcall('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
if not queued[1] then -- or ZRANGE is not permitted
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], '')
  return 2
end
