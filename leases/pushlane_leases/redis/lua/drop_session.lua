-- Forget it, unless there is a greater term.
if not found or term > ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
