-- The scripts of SetNXQueued and SetNXNumbered, and quit.lua, begin with this file. So does the
-- script of DeleteIf with a queue, after free.lua. This file serves single locks only.
-- A lock goes to the waiter that has waited longest.
-- KEYS[1] the lock
-- KEYS[2] its queue: a sorted set of waiters; the score is the order of arrival
-- A member of the queue is the waiter, an @, and the channel of the waiter's store.
-- The value of a reserved lock has the member in it. Software that knows no reservations takes it
-- for a lock that is held.
local reserved = 'lockstep:reserved:'

-- send sends a message for a waiter to the waiter's store. It returns how many clients received the
-- message, or false if the channel is not permitted.
local function send(kind, member)
  local waiter, channel = string.match(member, '^([^@]*)@(.*)$')
  local heard = channel and redis.pcall('PUBLISH', channel, kind .. waiter .. '@' .. KEYS[1])
  return type(heard) == 'number' and heard
end

-- offer reserves the lock, for ms milliseconds, for the first waiter whose message was received. It
-- also sends a message to the next waiter, which tries again in case the reservation is not used.
-- offer returns the waiter that has the reservation. It returns me if me is the head, and nil if no
-- waiter is left. In a cluster, PUBLISH counts only subscribers of the same node. Then counted is
-- empty, and offer assumes that the head received its message.
local function offer(me, ms, counted)
  while true do
    local queue = redis.call('ZRANGE', KEYS[2], 0, 1)
    local first = queue[1]
    if not first or first == me then
      return first
    end
    if type(redis.pcall('ZREM', KEYS[2], first)) ~= 'number' then -- ZREM is not permitted
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

-- let releases the lock: it goes to the head of the queue, or becomes free. It also becomes free if
-- a command for the queue is not permitted.
local function let(channel, ms, counted)
  local permitted, first = pcall(offer, '', ms, counted)
  if not permitted or not first then
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', channel, '')
  end
end

