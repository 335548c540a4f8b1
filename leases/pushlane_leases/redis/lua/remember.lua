-- Keep lots of dedup marks, KEYS[2] on, with their values, ARGV[4] on, for ARGV[3] ms.
local owner = newer_owner()
if owner then
  return owner
end
for i = 2, #KEYS do
  redis.call('SET', KEYS[i], ARGV[i + 2], 'PX', ARGV[3])
end
keep_epoch()
return fresh and 'fresh' or nil
