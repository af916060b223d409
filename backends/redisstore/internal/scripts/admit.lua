-- What enter, leave and withdraw go on with: who waits, the reservations that have not ended, and who may join.
-- KEYS[2] the queue of the lock: a sorted set of who waits, by ticket  KEYS[3] its reservations: a sorted set of their own, so
-- that no token can forge one. Without these keys nobody waits.
local queueing = #KEYS > 2

-- A waiter in the queue, or with a reservation, is a text: waiter@limit@length@group channel, where length is that of group.
local function parse(member)
  local waiter, limit, length, rest = string.match(member, '^([^@]*)@(%d+)@(%d+)@(.*)$')
  length = tonumber(length)
  return waiter, tonumber(limit), string.sub(rest, 1, length), string.sub(rest, length + 1)
end

local reserved = 0
local next = queueing and not foreign and redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES') or {}
if next[1] then
  if tonumber(next[2]) < now then
    redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', before)
    ended = true
  end
  reserved = redis.call('ZCARD', KEYS[3])
  if holds == 0 and reserved > 0 then
    local _, _, its = parse(next[1])
    group = its -- that of all
  end
end

local function fits(its, limit)
  local count = holds + reserved
  return count == 0 or its == group and (limit == 0 or count < limit)
end

-- tell sends a message for a waiter to its store. It returns how many have heard, or false if the channel is not permitted.
local function tell(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message .. KEYS[1])
  return type(heard) == 'number' and heard
end

-- remind lets the first in the queue look again when the reservations that were just made are over.
local function remind(head)
  local waiter, _, _, channel = parse(head)
  tell(channel, 'n' .. waiter .. '@')
end

-- admit reserves room, for so many ms, for waiters from the head of the queue, until one does not fit or is me. Who does not
-- hear is dropped. It returns the one at which it stopped, or nil. Receivers elsewhere in a cluster are not counted: there
-- everybody is taken to have heard.
local function admit(me, ms, counted)
  local given, head = 0, nil
  while queueing do
    head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if not head or head == me then
      break
    end
    local _, limit, its, channel = parse(head)
    if not fits(its, limit) then
      break
    end
    redis.call('ZREM', KEYS[2], head)
    local heard = tell(channel, 'R' .. #head .. '@' .. head)
    if heard and (heard > 0 or counted == '') then
      redis.call('ZADD', KEYS[3], string.format('%.0f', now + ms), head)
      reserved, group, given = reserved + 1, its, given + 1
    end
  end
  if given > 0 then
    live(KEYS[3], now + ms)
    if head and head ~= me then
      remind(head)
    end
  end
  return head ~= me and head or nil
end

-- room gives what has become free to those who wait, or tells those that watch if nobody waits in the queue.
local function room(channel, ms, counted)
  if holds + reserved == 0 then
    group = ''
  end
  if not admit('', ms, counted) and channel ~= '' then
    redis.call('PUBLISH', channel, '')
  end
end

