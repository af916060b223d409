-- What those begin with that grant a lock which is free or has the token they ask for: it lives for so many ms from now. It never
-- lives shorter than it would have, since a request that comes twice must not take back what was extended in between.
-- KEYS[1] the lock
local function grant(value, token, ms)
  if not value or redis.call('PTTL', KEYS[1]) < tonumber(ms) then -- it is -1 without expiry
    redis.call('SET', KEYS[1], token, 'PX', ms) -- PEXPIRE would do nothing if it has ended since it was read
  end
end

