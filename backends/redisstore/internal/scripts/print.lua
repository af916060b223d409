-- The scripts of Inspect and Evict begin with this file.
-- printOf names a token, without a way back to it. Redis has no other hash that this is good for.
local function printOf(token)
  return string.sub(redis.sha1hex(token), 1, 16)
end

-- isToken is true for the form of the tokens of a Client: see backends.IsToken.
local function isToken(text)
  return (#text == 26 or string.sub(text, -27, -27) == ' ') and string.match(string.sub(text, -26), '^[A-Z2-7]+$') ~= nil
end
