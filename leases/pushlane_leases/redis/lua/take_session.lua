-- Give it the term ARGV[3] if it has the caller's. ARGV[2] is the time.
if is_over(ARGV[2]) or term ~= ARGV[1] then
  return 0
end
local taken = string.sub(found, 1, 16) .. ARGV[3] .. string.sub(found, 33)
redis.call('SET', KEYS[1], taken, 'KEEPTTL')
return 1
