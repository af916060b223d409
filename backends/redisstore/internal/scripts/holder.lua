-- The scripts of all calls that report a holder begin with this file: SetNX, SetNXQueued,
-- SetNXNumbered, SetNXFenced, Enter, Transfer and Inspect.
-- holder returns the label in a token, without the secret, or an empty text: see backends.HolderOf.
-- It also returns the 17 bytes in front of the label of an eviction.
-- A longer text is no token. It may be data of other software, of any size: the server does nothing
-- else while it matches a text.
local function holder(token)
  local label, secret = string.match(#token <= 144 and token or '', '^(.+) ([A-Z2-7]+)$')
  return label and #secret == 26 and #label <= 117 and label or ''
end

