-- The scripts of SetNX, SetNXQueued, SetNXNumbered and SetNXFenced begin with this file.
-- It serves single locks only.
-- grant stores the token for ms milliseconds from now. value is the token if the lock holds it
-- already. Then grant never shortens the life of the lock: a request that arrives twice must not
-- undo an ExpireIf in between.
-- KEYS[1] the lock
local function grant(value, token, ms)
  if not value or redis.call('PTTL', KEYS[1]) < tonumber(ms) then -- PTTL is -1 without expiry
    -- PEXPIRE would do nothing if the value has expired since GET.
    redis.call('SET', KEYS[1], token, 'PX', ms)
  end
end

