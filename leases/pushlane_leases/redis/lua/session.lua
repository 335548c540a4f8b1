-- Stands before the scripts of sessions.
-- KEYS[1] is a session: until when it is good, its term (16 digits each), and its record.
-- ARGV[1] is the caller's term.

local found = redis.call('GET', KEYS[1])
local term = found and string.sub(found, 17, 32)

local function is_over(now)
  return not found or string.sub(found, 1, 16) <= now
end
