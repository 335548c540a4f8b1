-- Keep ARGV[3] for ARGV[4] ms, unless there is a greater term. ARGV[2] is the time.
if not is_over(ARGV[2]) and term > ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 1
