# Caisson. `make help` lists the targets.
GO        ?= go
BIN       := bin
GUEST     := $(BIN)/caisson-guest
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X github.com/caisson-run/caisson.Version=$(VERSION)
TOOL      := $(GO) tool -modfile=tools/go.mod
export CGO_ENABLED := 0

.PHONY: help build test check race script crash sequences requests fuzz bench lint docs demo clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

build: ## build bin/caisson, with the guest inside it, and bin/caisson-guest
	@$(GO) build -trimpath -ldflags '-s -w' -o $(GUEST) ./cmd/caisson-guest
	@cp $(GUEST) host/guest.bin
	@$(GO) build -trimpath -tags embed_guest -ldflags '$(LDFLAGS)' -o $(BIN)/caisson ./cmd/caisson

test: build ## run every test, as root also as an unprivileged user; sets up what it needs
	@scripts/test

check: test lint ## what CI runs
	@$(MAKE) docs && git diff --exit-code

race: build ## run the tests under the race detector
	CGO_ENABLED=1 CAISSON_GUEST=$(CURDIR)/$(GUEST) $(GO) test -race -short -timeout 40m ./...

script: build ## run only the command line's scripts
	CAISSON_GUEST=$(CURDIR)/$(GUEST) $(GO) test ./internal/cli/...

crash: build ## kill it at random moments, CRASH (default 200) times each
	@CAISSON_GUEST=$(CURDIR)/$(GUEST) CAISSON_STORM=$(or $(CRASH),200) $(GO) test -count=1 -timeout 60m -run 'TestLife/TestCase_S04' ./sandbox/namespace ./sandbox/bubblewrap ./sandbox/landlock
	@CAISSON_GUEST=$(CURDIR)/$(GUEST) CAISSON_STORM=$(or $(CRASH),200) scripts/engines $(GO) test -count=1 -timeout 120m -p 1 -run 'TestCase_S04' ./internal/cli ./sandbox/container
	@$(GO) test -count=1 -timeout 60m -run 'TestRandomCrashes' ./airlock -rapid.checks=$(or $(CRASH),200)
	@CAISSON_GUEST=$(CURDIR)/$(GUEST) CAISSON_STORM=$(or $(CRASH),200) $(GO) test -count=1 -timeout 60m -run 'TestStorm|TestCase_K03|TestRandomRequests' ./control -rapid.checks=$(or $(CRASH),200)

sequences: build ## remove and restore workspaces after SEQUENCES (default 1000) drawn sequences of git's commands
	@CAISSON_GUEST=$(CURDIR)/$(GUEST) CAISSON_SEQUENCES=$(or $(SEQUENCES),1000) $(GO) test -count=1 -timeout 120m -run 'TestSequences' ./workspace

requests: ## send REQUESTS (default 100000) through one control channel
	@CAISSON_LONG_REQUESTS=$(or $(REQUESTS),100000) $(GO) test -count=1 -timeout 120m -v -run 'TestCase_K07' ./control

fuzz: ## fuzz every target for FUZZ (default 30s; 300x for a number of inputs) each
	@scripts/fuzz $(or $(FUZZ),30s)

bench: build ## print one JSON line a metric; BENCH="name …" chooses
	@$(GO) build -o $(BIN)/bench ./bench
	@$(BIN)/bench -bin $(BIN) $(BENCH)

lint: ## lint
	@$(TOOL) golangci-lint run --allow-serial-runners ./...

docs: ## write the generated pages
	@$(GO) run ./internal/docs

demo: build ## the main job, end to end, on a real repository; MODEL=provider/name for a real model
	@scripts/demo

clean: ## remove what was built
	rm -rf $(BIN) host/guest.bin
