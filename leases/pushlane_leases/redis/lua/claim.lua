-- What is out: a page of runs that begins with ARGV[4], of at most ARGV[5]. Those whose deadline
-- is not after ARGV[3] are dropped. The first of the answer is where the page ended, or ''.
local owner = newer_owner()
if owner then
  return owner
end
keep_epoch()
local page = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[4], '+', 'LIMIT', 0, ARGV[5])
local answer = {#page == tonumber(ARGV[5]) and page[#page] or ''}
for _, run in ipairs(page) do
  local _, _, _, deadline = parse(run)
  if deadline > ARGV[3] then
    answer[#answer + 1] = run
  else
    redis.call('ZREM', KEYS[2], run)
  end
end
return answer
