# "make" alone lists the targets.

PREFIX ?= $(HOME)/.local
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GO ?= go
# Further arguments of "go test" for test, race and e2e, e.g. TESTFLAGS='-v -run Cold'.
TESTFLAGS ?=
# Further arguments of bench, e.g. BENCHFLAGS=-short for a quick look.
BENCHFLAGS ?=
# How long each fuzz target runs, in CI and in "make soak", and what else that
# does: seeds from SEED on,
# jobs of each of four workers, kills at a job's end.
FUZZTIME ?= 10s
SOAKFUZZ ?= 3m
SEED ?= 1
RUNS ?= 5
JOBS ?= 100
ENDS ?= 500

LDFLAGS = -s -w -X main.version=$(VERSION)
TOOLS = $(or $(JOBD_TOOLS),$(CURDIR)/.tools)
GOLANGCI = $(TOOLS)/bin/golangci-lint
CLAUDE ?= $(or $(wildcard $(TOOLS)/npm/node_modules/.bin/claude),$(shell command -v claude))

.DEFAULT_GOAL := help
.PHONY: help build test race e2e conformance fuzz lint fmt tidy golden bench soak vulncheck ci install install-plugin uninstall

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  %-16s %s\n' "$$name" "$$text"; done

build: ## build mcp-stdio, jobd and jobd-shim into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/mcp-stdio ./cmd/jobd ./cmd/jobd-shim

install: build ## install into PREFIX (~/.local) and register with Claude Code
	PREFIX='$(PREFIX)' scripts/install.sh server

install-plugin: build ## the same, but registered as a plugin
	PREFIX='$(PREFIX)' scripts/install.sh plugin

uninstall: ## take back what install did; PURGE=1 removes the jobs too
	PREFIX='$(PREFIX)' PURGE='$(PURGE)' scripts/uninstall.sh

test: ## run the tests that need nothing but Go
	$(GO) test $(TESTFLAGS) ./...
	$(GO) test -tags fault $(TESTFLAGS) ./internal/clock

race: ## the same with the race detector
	$(GO) test -race -timeout 15m $(TESTFLAGS) ./...

e2e: ## test the real binaries, with the real Claude Code; needs tmux
	CLAUDE='$(CLAUDE)' JOBD_TOOLS='$(TOOLS)' $(GO) test -tags e2e -count=1 -timeout 20m -parallel 3 $(TESTFLAGS) ./internal/e2e/...

conformance: ## run the official MCP conformance suite; needs npm packages
	JOBD_TOOLS='$(TOOLS)' scripts/conformance.sh

fuzz: ## run every fuzz target for FUZZTIME
	scripts/fuzz.sh '$(FUZZTIME)'

lint: ## check formatting and run golangci-lint
	$(GOLANGCI) run ./...

fmt: ## format all Go files
	gofmt -w cmd internal

tidy: ## tidy go.mod and go.sum
	$(GO) mod tidy

golden: ## write generated docs and golden files anew
	for dir in $$(grep -rlE 'flag\.Bool\("update"' --include='*_test.go' cmd internal | xargs -n1 dirname | sort -u); do \
		$(GO) test ./$$dir -update || exit 1; done

bench: build ## measure, into docs/benchmarks.md
	JOBD_TOOLS='$(TOOLS)' GO='$(GO)' internal/bench/bench.sh $(BENCHFLAGS)

soak: ## kill things at random, flood and fuzz, long: SEED, RUNS, JOBS, ENDS, SOAKFUZZ
	SEED='$(SEED)' RUNS='$(RUNS)' JOBS='$(JOBS)' ENDS='$(ENDS)' WHOLE=1 SUBMITS=200 FLOOD=30 OUTPUT=1024 MANY=1000 $(GO) test -tags e2e -count=1 -timeout 4h -v \
		-run 'TestSoak|AtAJobsEnd|AtAnyPoint|TestFlood|TestHuge|TestManyJobs' ./internal/e2e/
	scripts/fuzz.sh '$(SOAKFUZZ)'

vulncheck: ## look for known vulnerabilities in what is linked; needs https://vuln.go.dev
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./cmd/...

ci: ## what a submission must pass
	bash .ci/run
