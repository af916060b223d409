-- What enter, renew and leave begin with: the holds of the lock, without those that have ended.
-- The lock is a hash. Field lockstep:owner names the owner; field hold:<token> is when that hold ends, in ms by this
-- server's clock. It is the one who holds that counts: a number of holds would be wrong for ever after a lost reply.
-- KEYS[1] the lock. TIME before a write needs Redis 5.
local time = redis.call('TIME') -- once: it goes on inside a script before Redis 7.2
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = redis.call('HGETALL', KEYS[1])
local owner, ends, holds, past = nil, {}, 0, {}
for i = 1, #fields, 2 do
  if fields[i] == 'lockstep:owner' then
    owner = fields[i + 1]
  elseif string.sub(fields[i], 1, 5) == 'hold:' then
    local at = tonumber(fields[i + 1])
    if at and at >= now then -- it lives until the end of that ms, as a key does
      ends[fields[i]] = at
      holds = holds + 1
    else
      past[#past + 1] = fields[i]
    end
  end
end

local function latest()
  local at = 0
  for _, one in pairs(ends) do
    at = math.max(at, one)
  end
  return at
end

-- settle writes what has changed; the key lives as long as its last hold. All that it calls is permitted to a server that is out of
-- memory, and a script that has written may go on to write what is not.
local function settle()
  if holds == 0 then
    redis.call('DEL', KEYS[1])
    return
  end
  for _, field in ipairs(past) do
    if not ends[field] then -- else it has been entered anew
      redis.call('HDEL', KEYS[1], field)
    end
  end
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', latest() + 1)) -- not in the ms that still counts
end

-- hold lets a hold live for so many ms from now, and never shorter than it would have. It returns what is to be stored.
local function hold(token, ttl)
  local field = 'hold:' .. token
  if not ends[field] then
    holds = holds + 1
  end
  ends[field] = math.max(ends[field] or 0, now + ttl)
  return field, string.format('%.0f', ends[field])
end

