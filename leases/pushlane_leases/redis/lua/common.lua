-- Stands before every script.
-- KEYS[1] is the epoch of the shard's owner. ARGV[1] is the caller's, ARGV[2] how long to keep it.

local function keep(key, ttl)
  -- -1 is "for ever": nothing of ours stays for ever
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- Nobody has been here before, or it was forgotten: the caller knows.
local fresh = false

local function keep_epoch()
  keep(KEYS[1], tonumber(ARGV[2]))
end

-- The owner's epoch if the caller's is older; else the caller is the owner from now on, and has to
-- keep its epoch. A full Redis refuses the first write of a script that needs memory, and none
-- after one that needs none, as `keep` is: so who adds something keeps the epoch last, and who
-- takes something out first.
local function newer_owner()
  local mine = tonumber(ARGV[1])
  local owner = redis.call('GET', KEYS[1])
  fresh = not owner
  owner = tonumber(owner or '0')
  if mine < owner then
    return owner
  end
  if mine > owner then
    redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL')
  end
  return nil
end

-- KEYS[2] is a sorted set of runs, all with score 0, so in the order of their bytes:
-- "PREFIX FIRST LAST DEADLINE REST", numbers with 16 digits. REST is for whoever reads it: it
-- says what FIRST was when the run was whole, so a part of a run is the same with other numbers.

local function parse(run)
  return string.match(run, '^(%S*) (%d+) (%d+) (%d+) ()')
end

-- Forget the numbers low..high (16 digits each) of a prefix.
local function cut(prefix, low, high)
  local start = prefix .. ' '
  local touched = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. start .. low, '(' .. start .. high .. '~')
  local before = redis.call(
    'ZREVRANGEBYLEX', KEYS[2], '(' .. start .. low, '[' .. start, 'LIMIT', 0, 1)[1]
  if before then
    touched[#touched + 1] = before
  end
  for _, run in ipairs(touched) do
    local _, first, last, deadline, rest = parse(run)
    if last >= low then
      -- The rest goes in before the run goes out: an empty set would lose its time to live.
      if first < low then
        local upto = string.format('%016d', tonumber(low) - 1)
        redis.call('ZADD', KEYS[2], 0,
          start .. first .. ' ' .. upto .. ' ' .. deadline .. ' ' .. string.sub(run, rest))
      end
      if last > high then
        local from = string.format('%016d', tonumber(high) + 1)
        redis.call('ZADD', KEYS[2], 0,
          start .. from .. ' ' .. last .. ' ' .. deadline .. ' ' .. string.sub(run, rest))
      end
      redis.call('ZREM', KEYS[2], run)
    end
  end
end
