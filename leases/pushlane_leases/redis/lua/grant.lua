-- Remember the runs from ARGV[6] on, for ARGV[3] ms. What ended before ARGV[4] may go, and has to
-- when there are more than ARGV[5].
local owner = newer_owner()
if owner then
  return owner
end
for i = 6, #ARGV do
  local prefix, first, last = parse(ARGV[i])
  cut(prefix, first, last)
  redis.call('ZADD', KEYS[2], 0, ARGV[i])
end
if #ARGV > 5 then
  keep(KEYS[2], tonumber(ARGV[3]))
end
-- What was not released, for we were not reached, would stay: a few are looked at each time.
for _, run in ipairs(redis.call('ZRANDMEMBER', KEYS[2], 4)) do
  local _, _, _, deadline = parse(run)
  if deadline < ARGV[4] then
    redis.call('ZREM', KEYS[2], run)
  end
end
local excess = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[5])
if excess > 0 then
  for _, run in ipairs(redis.call('ZRANDMEMBER', KEYS[2], excess)) do
    redis.call('ZREM', KEYS[2], run)
  end
end
keep_epoch()
return fresh and 'fresh' or nil
