module github.com/lockstep-go/lockstep/bench

go 1.26.0

require (
	github.com/bsm/redislock v0.10.0
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/lockstep-go/lockstep v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	golang.org/x/sys v0.48.0
	modernc.org/sqlite v1.50.0 // v1.61.1 needs a google/pprof that is not to be had from the module proxy
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	go.uber.org/atomic v1.12.0 // indirect
	modernc.org/libc v1.72.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
)

replace github.com/lockstep-go/lockstep => ../

// Needed by redsync's own tests only; v1.0.79 is not to be had from the module proxy.
replace github.com/redis/rueidis/rueidiscompat => github.com/redis/rueidis/rueidiscompat v1.0.78
