-- The scripts of Inspect and Evict begin with this file.
-- The server does nothing else while it reads or hashes a text. Data of other software may be of any
-- size, so they do so with the ends of a text only. No token is as long as one of them.
local most = 1024

-- printOf names a token, without a way back to it. Redis has no other hash that this is good for.
local function printOf(token)
  if #token > most then
    token = string.sub(token, 1, most + 1) .. string.sub(token, -most)
  end
  return string.sub(redis.sha1hex(token), 1, 16)
end

-- textOf returns the text in a lock of this type, or what printOf takes of it.
local function textOf(kind)
  if kind ~= 'string' then
    redis.call('ZRANGE', KEYS[1], 0, 0) -- an error for a type that the store does not write
    return ''
  end
  local text = redis.pcall('GETRANGE', KEYS[1], 0, most)
  if type(text) == 'table' then -- not permitted: the least ACL had no GETRANGE once
    return redis.call('GET', KEYS[1]) or ''
  elseif #text > most then
    text = text .. redis.call('GETRANGE', KEYS[1], -most, -1)
  end
  return text
end

-- isToken is true for the form of the tokens of a Client: see backends.IsToken.
local function isToken(text)
  return (#text == 26 or string.sub(text, -27, -27) == ' ') and string.match(string.sub(text, -26), '^[A-Z2-7]+$') ~= nil
end
