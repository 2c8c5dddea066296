"""What Redis does in one step beyond its own commands: scripts in Lua."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha1(self.text.encode()).hexdigest()


def replacement(before: bytes | None, after: bytes | None) -> list[bytes]:
    """Three arguments: whether there is a value before and after, and both."""
    there = b"%d%d" % (before is not None, after is not None)
    return [there, before or b"", after or b""]


# Replaces values that are what they are said to be, and answers with the places of the others.
# After the first argument come three for each key, made by `replacement`. Values are compared as a
# whole: they may come back to what they were, and then nothing is wrong with replacing them. If the
# script may have been run before, its answer lost, a value that is the new one is its own work.
REPLACE = Script("""
local now = redis.call('MGET', unpack(KEYS))
local lost = {}
for i = 1, #KEYS do
  local there, before, after = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  if string.sub(there, 1, 1) == '0' then before = false end
  if string.sub(there, 2, 2) == '0' then after = false end
  if now[i] == before then
    if after then redis.call('SET', KEYS[i], after) else redis.call('DEL', KEYS[i]) end
  elseif not (ARGV[1] == '1' and now[i] == after) then
    lost[#lost + 1] = i
  end
end
return lost
""")

# The same for one note, the first key, whose name is the last argument. The second key is the set
# of the names of all notes, so that nobody has to look through all keys for them.
REPLACE_NOTE = Script("""
local now = redis.call('GET', KEYS[1])
local there, before, after = ARGV[2], ARGV[3], ARGV[4]
if string.sub(there, 1, 1) == '0' then before = false end
if string.sub(there, 2, 2) == '0' then after = false end
if now == before then
  if after then
    redis.call('SET', KEYS[1], after)
    redis.call('SADD', KEYS[2], ARGV[5])
  else
    redis.call('DEL', KEYS[1])
    redis.call('SREM', KEYS[2], ARGV[5])
  end
elseif not (ARGV[1] == '1' and now == after) then
  return {1}
end
return {}
""")
