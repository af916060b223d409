# Everything a developer runs. `make help` lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help

MODULES := . bench backends/rueidis backends/pgx backends/etcd backends/nats backends/sqlstore/dialects proof/differential cmd/lockstep
# the stores whose modules have campaigns of their own: see proof/rivals
STORES := backends/pgx backends/etcd backends/nats backends/sqlstore/dialects
# the modules that are apart for the sake of what they require; everything runs their tests as it runs those of the root
APART := proof/differential
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The parts of make test: as soon as one ends, the next one begins. The longest come first, and those
# that mostly wait stand beside test-root, which computes.
TESTS := test-root test-etcd test-pgx test-nats test-command test-dialects test-rueidis test-differential test-servers test-again test-bench

.PHONY: help fmt check test $(TESTS) fuzz lint bench bench-peers headlines regress servers mysql torture simulate fresh matrix cover release programs

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

fmt: ## format all Go files
	@gofmt -w .

# The first line tests the packages that import no package which starts a server. The others test parts
# of the rest: the contract in fake time, two schedules of each cell, and the documentation.
check: lint ## lint, and run the tests that need no server (2 minutes)
	@go test $$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... \
		| grep -v -e /proof/redistest -e /proof/beneath -e /proof/simulation | cut -d ' ' -f 1)
	@go test -run 'Contract/fake_time' ./strategies/single ./strategies/fair ./strategies/fenced ./strategies/reentrant
	@go test -run 'Contract.*InFakeTime' ./strategies/redlock
	@go test -run 'Contract//fake_time' ./strategies/legacy
	@go test -run Promises ./proof/simulation -schedules 2
	@go test -skip TheFirstExample ./proof/repository

test: programs ## run all tests, under the race detector; installs Redis, PostgreSQL, PgBouncer, MariaDB, gcc, node and npm if they are missing
	@$(MAKE) --no-print-directory -j 2 $(TESTS)

# Two parts run at once, and test-root runs three packages at once, since tests with real servers wait for
# much of their time. More keep two CPUs no busier, and only make each test wait for them. They leave go vet
# to make lint.
#
# The go command takes cached results of packages whose code, files and LOCKSTEP_ variables are as they
# were. So nothing here is shuffled, which would switch that off; -trimpath makes the results hold in other
# folders, and .ci/versions tells the tests what else they depend on. Nothing is cached of the packages
# that look at files of other modules: bench, cmd/lockstep, proof/release and proof/repository.
# -ldflags=-w leaves out what only a debugger reads, a third of the time to link. Five things run without the race detector,
# which makes them many times slower:
#   - the benchmark: nearly all of its code is from other projects, and takes two minutes to build;
#   - the simulation, which plays 8 schedules of each cell: the detector finds nothing more in them than in
#     the tests of the strategies, and `make torture` plays some with it;
#   - the contracts on embedded servers: with the detector they run on memory and on real servers;
#   - the contract of SQLite, which is C that was translated to Go: with the detector it runs on MariaDB;
#   - the searches through all states of redlock's protocol, which have one goroutine.
cached = LOCKSTEP_REQUIRE_REDIS=1 LOCKSTEP_SERVERS="$$($(CURDIR)/.ci/versions)" go test -vet=off -trimpath -ldflags=-w
race := -race -parallel 16 -timeout 20m
uncached := proof/release proof/repository
test-root:
	@$(cached) $(race) -p 3 $$(go list ./... | grep -v $(patsubst %,-e /%$$,proof/simulation $(uncached)))
	@LOCKSTEP_REQUIRE_REDIS=1 go test -vet=off -shuffle=on -p 1 -timeout 20m $(addprefix ./,$(uncached))
test-rueidis:
	@cd backends/rueidis && $(cached) $(race) ./...
	@cd backends/rueidis && $(cached) -run 'OnEmbedded|InFakeTime' .
test-pgx test-etcd test-nats:
	@cd backends/$(@:test-%=%) && $(cached) $(race) ./...
test-differential:
	@cd proof/differential && $(cached) $(race) ./...
test-dialects:
	@cd backends/sqlstore/dialects && $(cached) $(race) ./...
	@cd backends/sqlstore/dialects && $(cached) -run '(Contract|EveryStrategy)/SQLite' .
test-command:
	@cd cmd/lockstep && LOCKSTEP_REQUIRE_REDIS=1 go test -vet=off -shuffle=on -timeout 20m ./...
test-bench:
	@cd bench && LOCKSTEP_REQUIRE_REDIS=1 go test -vet=off -shuffle=on -timeout 20m ./...
test-again:
	@$(cached) ./proof/simulation
	@$(cached) -run OnEmbedded ./backends/goredis ./backends/redigo
	@$(cached) -run 'Contract/embedded|OnEmbedded|AllStates|Refuted|Symmetry' $(addprefix ./strategies/,single fair fenced reentrant redlock)
	@$(cached) -run 'Contract//embedded' ./strategies/legacy
test-servers:
	@folders=$$(.ci/servers newest) && go run ./proof/servers -small -check docs/choosing-a-store.md $$folders

# .ci/servers fails if it leaves a server out: see LOCKSTEP_WITHOUT_NEWER_SERVERS there.
servers: programs ## run the tests on Redis and Valkey of several versions, and write artefacts/servers.md and the list of docs/choosing-a-store.md (an hour)
	@folders=$$(.ci/servers) && go run ./proof/servers -table artefacts/servers.md -docs docs/choosing-a-store.md - $$folders

# Without packages of Debian there is no folder, and .ci/servers fails.
mysql: ## run the tests of sqlstore on MySQL instead of MariaDB (3 minutes)
	@folder=$$(.ci/servers mysql) && test -n "$$folder" && cd backends/sqlstore/dialects && \
		PATH=$$folder:$$PATH LOCKSTEP_REQUIRE_REDIS=1 go test -race -shuffle=on -parallel 16 -timeout 1h -skip 'SQLite|/SQLite' ./...

fuzz: ## fuzz every target of every module for TIME (10s)
	@set -o pipefail; for m in $(MODULES); do (cd $$m && go test -list '^Fuzz' ./... \
		| awk '/^Fuzz/ { found[n++] = $$1 } $$1 == "ok" { while (n > 0) print $$2, found[--n] }' \
		| while read -r package target; do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(TIME),10s) "$$package" </dev/null || exit 1; \
		done) || exit 1; done

# golangci-lint runs the analyzers of go vet (govet).
lint: ## gofmt, golangci-lint and go mod tidy, for every module
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	@for m in $(MODULES); do (cd $$m && echo "lint $$m" && $(GOLANGCI) run ./... && go mod tidy -diff) || exit 1; done

bench: programs ## measure beside raw commands and other lock libraries, in one run
	@cd bench && go run . && go run . -pin=false
	@go test -run '^$$' -bench . ./locker ./backends/memory

headlines: programs ## measure all cases three times and write the ranges into docs/performance.md, and the last run into artefacts (3 hours)
	@cd bench && go run ./peers -repeat 3 -runs 3 -page ../artefacts/performance.md -headlines ../docs/performance.md

bench-peers: programs ## measure all cases beside other lock libraries and write them into artefacts/performance.md (70 minutes); CASE=a,d for some
	@cd bench && go run ./peers -page ../artefacts/performance.md $(if $(CASE),-case $(CASE))

regress: programs ## compare the speed of this tree with that of the commit BASE, which takes 20 turns of each case (15 minutes)
	@cd bench && go run ./regress -base $(or $(BASE),HEAD)

# The simulation plays a schedule the same every time, so it plays more schedules instead of playing
# them again. The campaigns are large and run once. Both run without the race detector, as the
# commands in proof/README.md do; make test runs a part of each with it.
torture: programs ## run every test in full size, COUNT times (20) but for campaigns and simulation, and end with the matrix (a day)
	LOCKSTEP_REQUIRE_REDIS=1 go run ./proof/torture -html artefacts/matrix.html -matrix artefacts/matrix.md -by 'make torture' -- \
		-race -shuffle=on -parallel 16 -count=$(or $(COUNT),20) -timeout 12h \
		$$(go list ./... | grep -v -e '/proof/campaign$$' -e '/proof/simulation$$') \
		$(foreach m,$(APART) $(STORES),-- -C $(m) -race -shuffle=on -parallel 16 -count=$(or $(COUNT),20) -timeout 12h -skip Campaign ./...) \
		-- -race -timeout 12h -run Fresh ./proof/simulation \
		-- -C cmd/lockstep -timeout 12h -count=$(or $(COUNT),20) -run 'BeforeTheLeaseEnds|NothingOutlives' . \
		-- -parallel 8 -timeout 12h -skip Promises ./proof/campaign ./proof/simulation \
		$(foreach m,$(STORES),-- -C $(m) -parallel 16 -timeout 12h -run Campaign ./...) \
		-- $(simulation)

simulation = -run Promises -timeout 24h ./proof/simulation -schedules $(or $(SCHEDULES),4000)

# 1,000 of each take 25 minutes on 2 free CPUs: 10 ms of one CPU for each schedule, as small runs have it.
simulate: ## play SCHEDULES schedules (4000: a million in all) of each strategy under each fault, and print what they have shown
	go test -v $(simulation)

# The seeds are the date and time; they are printed, and a failure prints the command that plays its schedule again.
fresh: ## play SCHEDULES schedules (200) of each strategy under each fault with seeds that nobody has played
	go test -v -run Fresh -timeout 24h ./proof/simulation -fresh $(or $(SCHEDULES),200)

# The campaigns that take longest have figures of their own in docs/safety.md; make torture runs them as well. ONLY=PowerCuts
# makes cells of one of them.
matrix: programs ## make artefacts/matrix.md and the cells of docs/matrix.md, or with ONLY=Shares the cells of the tests of that name; with MYSQL=yes too, on MySQL instead of MariaDB
	$(if $(MYSQL),test -n '$(ONLY)' && folder=$$(.ci/servers mysql) && test -n "$$folder" && PATH="$$folder:$$PATH" )LOCKSTEP_REQUIRE_REDIS=1 go run ./proof/torture -html artefacts/matrix.html -matrix artefacts/matrix.md -docs docs/matrix.md \
		$(if $(ONLY),-keep -by 'make matrix $(if $(MYSQL),MYSQL=yes )ONLY="$(ONLY)"$(if $(filter command,$(firstword $(origin STORES))), STORES="$(STORES)")',-by 'make matrix') -- -timeout 2h $(if $(ONLY),-run '$(ONLY)') \
		$(if $(ONLY),,-skip '^(TestSoak|TestPowerCuts|TestFailovers|TestReshardings)$$') ./proof/simulation ./proof/campaign \
		$(foreach m,$(STORES),-- -C $(m) -parallel 16 -timeout 2h -run '$(or $(ONLY),Campaign|GuardedCounter)' ./...)

# The campaigns and the simulation are left out: they take longest, and the figures do not need them.
covered := $(subst @,github.com/lockstep-go/lockstep,@/locker/...,@/backends/...,@/strategies/...,@/middleware/...,@/internal/cleanup)
cover: programs ## tell which statements no test runs, package by package, and check the list of them in proof/coverage/unrun.md
	@LOCKSTEP_REQUIRE_REDIS=1 go test -coverprofile=coverage.out -coverpkg=$(covered) \
		$$(go list ./... | grep -v -e /proof/campaign -e /proof/simulation)
	@for m in $(APART); do LOCKSTEP_REQUIRE_REDIS=1 go test -C $$m -coverprofile=$(CURDIR)/coverage.apart.out -coverpkg=$(covered) ./... && \
		cat coverage.apart.out >>coverage.out || exit 1; done
	@go run ./proof/coverage -list proof/coverage/unrun.md coverage.out

# A dry run, in a throw-away clone. Nothing is ever pushed: see docs/releasing.md.
release: ## try the release VERSION out as a consumer gets it; TAG=yes then makes its tags here
	@go run ./proof/release $(if $(filter yes,$(TAG)),-tag) $(if $(filter yes,$(STALE)),-stale) "$(VERSION)"

# The tests start their own servers. The race detector and the libraries that set a server's clock need a C compiler, and the tests
# beside node-redlock need node and npm.
programs:
	@.ci/install redis-server cc node npm postgres pgbouncer mariadbd
	@redis-server --version
