-- The caller is the owner, whatever stands here: if that is still ARGV[3], all of it is forgotten.
if redis.call('GET', KEYS[1]) == ARGV[3] then
  redis.call('DEL', KEYS[1], KEYS[2])
end
local owner = newer_owner()
if not owner then
  keep_epoch()
end
return owner
