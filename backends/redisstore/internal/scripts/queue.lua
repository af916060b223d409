-- The scripts of SetNXQueued and SetNXNumbered, and quit.lua, begin with place.lua and this file. So
-- does the script of DeleteIf with a queue, after free.lua. This file serves single locks only.
-- A lock goes to the waiter that has waited longest.
-- KEYS[1] the lock
-- KEYS[2] its queue: see place.lua
-- A member of the queue is the waiter, an @, and the channel of the waiter's store.
-- The value of a reserved lock has the member in it. Software that knows no reservations takes it
-- for a lock that is held.
local reserved = 'lockstep:reserved:'

-- send sends a message for a waiter to the waiter's store. It returns how many clients received the
-- message, or false if the channel is not permitted. It is false too for a waiter for a shared hold,
-- which is in the same queue: see admit.lua. Another strategy had the key then.
local function send(kind, member)
  local waiter, channel = string.match(member, '^([^@]*)@(.*)$')
  local heard = channel and not string.match(channel, '^%d+@%d+@') and redis.pcall('PUBLISH', channel, kind .. waiter .. '@' .. KEYS[1])
  return type(heard) == 'number' and heard
end

-- offer reserves the lock for the first waiter in line whose message was received, for ms
-- milliseconds or as long as the waiter needs. It also sends a message to the next waiter, which
-- tries again in case the reservation is not used. offer returns the waiter that has the reservation.
-- It returns me if me is the head, and nil if nobody is in line. In a cluster, PUBLISH counts only
-- subscribers of the same node. Then counted is empty, and offer assumes that the head received its
-- message. list is as in heads.
local function offer(me, ms, counted, list)
  list = heads(me, false, list)
  while list[1] do
    local first, score = list[1], tonumber(list[2])
    if first == me then
      return first
    end
    if not leave(first) then
      return nil
    end
    local heard = send('r', first)
    if heard and (heard > 0 or counted == '') then
      late(first, score, list[3])
      redis.call('SET', KEYS[1], reserved .. first, 'PX', keepOf(score, ms))
      if list[3] then
        send('n', list[3])
      end
      return first
    end
    list = heads(me, false)
  end
end

-- let releases the lock: it goes to the head of the queue, or becomes free. It also becomes free if
-- a command for the queue is not permitted. If all waiters are late, they are woken.
local function let(channel, ms, counted, list)
  local permitted, first = pcall(offer, '', ms, counted, list)
  if permitted and first then
    return
  end
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', channel, '')
  for _, it in ipairs(lates(8)) do
    if send('r', it) == 0 and counted ~= '' then
      redis.call('ZREM', KEYS[2], it)
    end
  end
end

