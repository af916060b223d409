-- The script of Evict ends with this file, after holds.lua and admit.lua: see evict.lua.
-- It reads all holds, since each may have been renewed since it was seen.
if foreign or redis.call('PTTL', KEYS[1]) == -1 then
  return 2
end
local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local token, score = all[i], all[i + 1]
  if score ~= 'inf' and printOf(token) == ARGV[1] then
    if ARGV[3] == '' and not isToken(token) then
      return 2
    end
    if ARGV[2] ~= '' then -- first: if ZADD is not permitted, the hold stays where it is
      redis.call('ZADD', KEYS[1], score, ARGV[2])
    end
    redis.call('ZREM', KEYS[1], token)
    if ARGV[2] == '' then
      holds = holds - 1
      settle(0)
      room(ARGV[4], ARGV[5], ARGV[6])
    end
    return 1
  end
end
return 0
