# Everything a developer runs. `make help` lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help

MODULES := . middleware/otellocker examples/otel bench backends/rueidisstore backends/pgxstore backends/etcd backends/natsstore backends/sqlstore/dialects proof/differential cmd/lockstep
# the stores whose modules have campaigns of their own: see proof/rivals
STORES := backends/pgxstore backends/etcd backends/natsstore backends/sqlstore/dialects
# the modules that are apart for the sake of what they require
APART := proof/differential middleware/otellocker examples/otel
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The parts of make test: as soon as one ends, the next one begins. The longest come first, and those
# that mostly wait stand beside test-root, which computes.
TESTS := test-root test-pgx test-etcd test-dialects test-command test-nats test-rueidis test-again test-tree test-apart test-servers test-bench

.PHONY: help fmt check test $(TESTS) fuzz lint bench bench-peers headlines regress servers mysql nightly parts figures vulnerabilities simulate fresh matrix cover release programs

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

fmt: ## format all Go files
	@gofmt -w .

# The first line tests the packages that import no package which starts a server. The others test parts
# of the rest: the contract in fake time, two schedules of each cell, and the documentation.
check: lint ## lint, and run the tests that need no server (2 to 4 minutes)
	@for m in . $(APART); do go list -C $$m -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... \
		| grep -v -e /proof/redistest -e /proof/beneath -e /proof/simulation | cut -d ' ' -f 1 | xargs -r go test -C $$m || exit 1; done
	@go test -run 'Contract/fake_time' ./strategies/single ./strategies/fair ./strategies/fenced ./strategies/reentrant
	@go test -run 'Contract.*InFakeTime' ./strategies/redlock
	@go test -run 'Contract//fake_time' ./strategies/legacy
	@go test -run Promises ./proof/simulation -schedules 2
	@go test -skip TheFirstExample ./proof/repository

test: programs ## run the tests that must pass for a change; installs Redis, PostgreSQL, PgBouncer, MariaDB, gcc, node and npm if they are missing
	@$(MAKE) --no-print-directory -j 3 $(TESTS)

# Three parts run at once, since tests with real servers wait for much of their time: with two, two CPUs
# are not busy. proof/ledger/parts.go has the flags of each part, and why.
$(filter-out test-servers,$(TESTS)):
	@go run ./proof/runs landing $(@:test-%=%)
test-servers:
	@folders=$$(.ci/servers newest) && go run ./proof/servers -small -check docs/choosing-a-store.md $$folders

# .ci/servers fails if it leaves a server out: see LOCKSTEP_WITHOUT_NEWER_SERVERS there.
servers: programs ## run the tests on Redis and Valkey of several versions, and write artefacts/servers.md and the list of docs/choosing-a-store.md (an hour); CHECK=yes compares that list
	@folders=$$(.ci/servers) && go run ./proof/servers -table artefacts/servers.md -$(if $(CHECK),check,docs) docs/choosing-a-store.md - $$folders

# Without packages of Debian there is no folder, and .ci/servers fails.
mysql: ## run the tests of sqlstore on MySQL instead of MariaDB, in full size (6 minutes)
	@folder=$$(.ci/servers mysql) && test -n "$$folder" && PATH=$$folder:$$PATH LOCKSTEP_TORTURE=1 \
		go run ./proof/runs test -C backends/sqlstore/dialects -race -shuffle=on -parallel 16 -timeout 1h -skip 'SQLite|Campaign|/SQLite' ./...

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

# BASE=yesterday is the last commit that is a day old.
regress: programs ## compare the speed of this tree with that of the commit BASE, which takes 20 turns of each case (15 minutes)
	@base=$(if $(filter yesterday,$(BASE)),$$(git rev-list -1 --before='1 day ago' HEAD),$(or $(BASE),HEAD)); \
		test -n "$$base" || { echo "the history has no commit of yesterday: is this a shallow clone?"; exit 1; }; \
		cd bench && go run ./regress -base "$$base"

# The parts have at most two hours each, and can run on machines side by side. COUNT repeats the tests.
nightly: programs ## run every test in full size, with fresh seeds, on all servers, beside yesterday's commit; PART=name for one part (see make parts)
	@.ci/install chromium
	@LOCKSTEP_REQUIRE_CHROMIUM=1 go run ./proof/runs nightly $(if $(COUNT),-count $(COUNT)) $(PART)

parts: ## list the parts of make nightly
	@go run ./proof/runs parts

figures: ## tell which figures of the pages are older than the code
	@go run ./proof/release -figures

vulnerabilities: ## look for known vulnerabilities in every module
	@for m in $(MODULES); do (cd $$m && echo "govulncheck $$m" && $(GOVULNCHECK) ./...) || exit 1; done

simulation = -run Promises -timeout 24h ./proof/simulation -schedules $(or $(SCHEDULES),4000)

# 1,000 of each take 25 minutes on 2 free CPUs: 10 ms of one CPU for each schedule, as small runs have it.
simulate: ## play SCHEDULES schedules (4000: a million in all) of each strategy under each fault, and print what they have shown
	go test -v $(simulation)

# The seeds are the date and time; they are printed, and a failure prints the command that plays its schedule again.
fresh: ## play SCHEDULES schedules (200) of each strategy under each fault with seeds that nobody has played
	go test -v -run Fresh -timeout 24h ./proof/simulation -fresh $(or $(SCHEDULES),200)

# The campaigns that take longest have figures of their own in docs/safety.md; make nightly runs them. Of the power cuts only
# those are made that docs/matrix.md shows. ONLY=PowerCuts makes the cells of them all.
matrix: programs ## make artefacts/matrix.md and the cells of docs/matrix.md, or with ONLY=Shares the cells of the tests of that name; with MYSQL=yes too, on MySQL instead of MariaDB
	$(if $(MYSQL),test -n '$(ONLY)' && folder=$$(.ci/servers mysql) && test -n "$$folder" && PATH="$$folder:$$PATH" )LOCKSTEP_REQUIRE_REDIS=1 go run ./proof/runs matrix -html artefacts/matrix.html -matrix artefacts/matrix.md -docs docs/matrix.md \
		$(if $(ONLY),-keep -by 'make matrix $(if $(MYSQL),MYSQL=yes )ONLY="$(ONLY)"$(if $(filter command,$(firstword $(origin STORES))), STORES="$(STORES)")',-by 'make matrix') -- -timeout 2h $(if $(ONLY),-run '$(ONLY)') \
		$(if $(ONLY),,-skip '^(TestSoak|TestFailovers|TestReshardings)$$|^TestPowerCuts$$/^(single,_AOF|fenced|redlock)') ./proof/simulation ./proof/campaign \
		$(foreach m,$(STORES),-- -C $(m) -parallel 16 -timeout 2h -run '$(or $(ONLY),Campaign|GuardedCounter)' ./...)

# The campaigns and the simulation are left out: they take longest, and the figures do not need them.
covered := $(subst @,github.com/lockstep-go/lockstep,@/locker/...,@/backends/...,@/strategies/...,@/middleware/...,@/internal/cleanup)
cover: programs ## tell which statements no test runs, package by package, and check the list of them in proof/coverage/unrun.md
	@go run ./proof/runs test -coverprofile=coverage.out -coverpkg=$(covered) \
		$$(go list ./... | grep -v -e /proof/campaign -e /proof/simulation)
	@for m in $(APART); do go run ./proof/runs test -C $$m -coverprofile=$(CURDIR)/coverage.apart.out -coverpkg=$(covered) ./... && \
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
