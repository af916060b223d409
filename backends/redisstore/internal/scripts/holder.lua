-- The scripts of all calls that report a holder begin with this file: SetNX, SetNXQueued,
-- SetNXNumbered, SetNXFenced, Enter, Transfer and Inspect.
-- holder returns the label in a token, without the secret, or an empty text: see backends.HolderOf.
local function holder(token)
  local label, secret = string.match(token, '^(.+) ([A-Z2-7]+)$')
  return label and #secret == 26 and #label <= 100 and label or ''
end

