-- What those begin with that tell who has a lock: holder gives the label in a token without its secret, see backends.HolderOf; empty: none.
local function holder(token)
  local label, secret = string.match(token, '^(.+) ([A-Z2-7]+)$')
  return label and #secret == 26 and #label <= 100 and label or ''
end

