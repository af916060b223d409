-- What those begin with that let go of a lock, or ask for it in turn: it goes to who has waited longest.
-- KEYS[1] the lock  KEYS[2] its queue: a sorted set of who waits, by ticket. A member is a waiter, an @, and the channel of
-- his store. A lock that is reserved has the member in its value; it is a lock like any other to who does not know.
local reserved = 'lockstep:reserved:'

-- send returns how many have heard, or nothing if the channel is not permitted.
local function send(kind, member)
  local waiter, channel = string.match(member, '^([^@]*)@(.*)$')
  local heard = channel and redis.pcall('PUBLISH', channel, kind .. waiter .. '@' .. KEYS[1])
  return type(heard) == 'number' and heard
end

-- offer reserves the lock, for so many ms, for the first who hears of it, and tells the one behind, who looks again if it was
-- not taken. It returns who has it: me, if me is the first; nil if nobody waits. Receivers elsewhere in a cluster are not
-- counted: then whoever is first is taken to have heard.
local function offer(me, ms, counted)
  while true do
    local queue = redis.call('ZRANGE', KEYS[2], 0, 1)
    local first = queue[1]
    if not first or first == me then
      return first
    end
    if type(redis.pcall('ZREM', KEYS[2], first)) ~= 'number' then -- not permitted
      return nil
    end
    local heard = send('r', first)
    if heard and (heard > 0 or counted == '') then
      redis.call('SET', KEYS[1], reserved .. first, 'PX', ms)
      if queue[2] then
        send('n', queue[2])
      end
      return first
    end
  end
end

-- let go of the lock: it is the first one's, or free. It is free as well if something is not permitted with its queue.
local function let(channel, ms, counted)
  local permitted, first = pcall(offer, '', ms, counted)
  if not permitted or not first then
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', channel, '')
  end
end

