-- The script of RaiseFence, and all scripts that number grants, begin with this file: see draw.lua.
-- count returns the last number of the lock, or 0 for none. If the counter holds anything else,
-- count returns nil and an error to reply.
-- A number is whole and below 2^53, so that Lua and every other language can hold it.
-- The last of KEYS is the counter.
local function count()
  local text = redis.call('GET', KEYS[#KEYS])
  local number = not text and 0 or string.match(text, '^%d+$') and tonumber(text)
  if not number or number >= 9007199254740992 then
    return nil, redis.error_reply('LOCKSTEP the counter of the lock holds no number below 2^53')
  end
  return number
end

