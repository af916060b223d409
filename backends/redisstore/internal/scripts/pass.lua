-- DeleteIf, where waiters stand in a queue: the lock goes to the first of them in the same step, or is free.
-- ARGV[1] token  ARGV[2] channel for whoever watches  ARGV[3] how long a reservation lasts in ms
-- ARGV[4] empty if receivers are not counted
let(ARGV[2], ARGV[3], ARGV[4])
return 1
