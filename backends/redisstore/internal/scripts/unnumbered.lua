-- The scripts that grant without a number begin with this file, not with draw.lua: SetNXQueued,
-- and Enter, Transfer and TransferHold without a number.
local function draw()
  return 0
end

