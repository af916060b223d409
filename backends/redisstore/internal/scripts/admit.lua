-- The scripts of Enter and Leave, and withdraw.lua, begin with place.lua, holds.lua and this file.
-- It serves shared holds only. It reads the reservations, and decides which waiters may enter.
-- KEYS[2] the queue of the lock: see place.lua
-- KEYS[3] its reservations: a sorted set of their own, so that no token can forge a reservation
-- Without these two keys there are no waiters.
local queueing = #KEYS > 2

-- A member of either set is the text waiter@limit@length@, then the group, then the channel of the
-- waiter's store. length is the length of the group. parse returns nothing for a waiter for a single
-- lock, which is in the same queue: see queue.lua. Another strategy had the key then, and the waiter
-- may be dead.
local function parse(member)
  local waiter, limit, length, rest = string.match(member, '^([^@]*)@(%d+)@(%d+)@(.*)$')
  if not waiter then
    return
  end
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
    group = its -- all reservations are of one group
  end
end

local function fits(its, limit)
  local count = holds + reserved
  return count == 0 or its == group and (limit == 0 or count < limit)
end

-- tell sends a message for a waiter to the waiter's store. It returns how many clients received the
-- message, or false if the channel is not permitted.
local function tell(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message .. KEYS[1])
  return type(heard) == 'number' and heard
end

-- remind sends a message to the store of the head of the queue. The store wakes the head when the
-- reservations that were made just now are over.
local function remind(head)
  local waiter, _, _, channel = parse(head)
  if waiter then
    tell(channel, 'n' .. waiter .. '@')
  end
end

-- admit reserves room for waiters from the head of the queue on, for ms milliseconds or as long as
-- each needs. It stops at the first waiter that does not fit, and returns that waiter. If it reaches
-- me or the end of the line, it returns nil. A waiter whose message no client received loses its
-- position, and so does a waiter for a single lock. In a cluster, PUBLISH counts only subscribers of the same node. Then counted is empty, and
-- admit assumes that every message was received.
local function admit(me, ms, counted)
  local given, head, i = 0, nil, 1
  local list = queueing and heads(me, reserved > 0) or {}
  while true do
    head = list[i]
    if not head or head == me then
      break
    end
    local _, limit, its, channel = parse(head)
    if limit and not fits(its, limit) then
      break
    end
    local score = tonumber(list[i + 1])
    redis.call('ZREM', KEYS[2], head)
    local heard = limit and tell(channel, 'R' .. #head .. '@' .. head)
    if heard and (heard > 0 or counted == '') then
      late(head, score, list[i + 2])
      redis.call('ZADD', KEYS[3], string.format('%.0f', now + keepOf(score, ms)), head)
      reserved, group, given = reserved + 1, its, given + 1
      someAreLate = true
    end
    i = i + 2
    if i == 5 then -- there may be more
      i, list = 1, behind()
    end
  end
  if given > 0 then
    live(KEYS[3], now + 2000) -- no reservation lasts longer
    if head and head ~= me then
      remind(head)
    end
  end
  return head ~= me and head or nil
end

-- room gives the room that has become free to waiters. If nobody is left in line, it wakes the
-- callers that watch the lock, and the late waiters.
local function room(channel, ms, counted)
  if holds + reserved == 0 then
    group = ''
  end
  if admit('', ms, counted) then
    return
  end
  if channel ~= '' then
    redis.call('PUBLISH', channel, '')
  end
  for _, it in ipairs(reserved == 0 and lates(8) or {}) do
    local _, _, _, its = parse(it)
    if not its or tell(its, 'R' .. #it .. '@' .. it) == 0 and counted ~= '' then
      redis.call('ZREM', KEYS[2], it)
    end
  end
end

