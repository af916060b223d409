-- What number, raise and a numbered enqueue begin with: the last number given, 0 for none, or nil and an error to reply.
-- A number is a whole one below 2^53, so that Lua and every other language can hold it.
-- The last of KEYS is the counter.
local function count()
  local text = redis.call('GET', KEYS[#KEYS])
  local number = not text and 0 or string.match(text, '^%d+$') and tonumber(text)
  if not number or number >= 9007199254740992 then
    return nil, redis.error_reply('LOCKSTEP the counter of the lock holds no number below 2^53')
  end
  return number
end

