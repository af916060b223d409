-- What pass.lua begins with: nobody waits, as is mostly so. Then there is no need for what queue.lua declares, each time anew.
-- KEYS[1] the lock  KEYS[2] its queue  ARGV[1] token  ARGV[2] channel for whoever watches
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if not redis.pcall('ZRANGE', KEYS[2], 0, 0)[1] then -- or it is not permitted to know
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], '')
  return 1
end
