package fence

// Script guards a hash in Redis, which has the greatest fence that was accepted in its field fence,
// beside the fields of the application. Send it with EVAL, or with EVALSHA; the hash is its only
// key, so a Redis Cluster runs it too.
//
//	KEYS[1]     the hash, which is created if it is not there
//	ARGV[1]     the fence in decimal digits: 1 to 2^53-1, which Lua compares exactly
//	ARGV[2...]  field, value, field, value, … to write, some thousand at most; none: claim
//	reply       1: written or claimed; 0: refused, since a greater fence was accepted before
//
// Anything else is an error reply, and nothing is written: a fence that is 0 or no number, a field
// without a value, a key that is no hash, a field fence that is no number. Sent again, it does and
// says the same, unless someone with a greater fence has come meanwhile. Fence and value are in one
// key, so that an eviction takes both or none. It needs Redis 4.0, and the permission for HGET and
// HSET on the hash.
const Script = `
local fence, last = tonumber(ARGV[1]), tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if not string.match(ARGV[1], '^[1-9]%d*$') or fence >= 2^53 then
  return redis.error_reply('ERR the fence has to be a whole number from 1 to 2^53-1')
end
if not last then
  return redis.error_reply('ERR the field fence is not a number')
end
if fence < last then
  return 0
end
if #ARGV > 1 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 2))
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1]) -- the last word, whatever fields were given
return 1
`
