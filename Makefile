# `make dev` and `make test` need Go and make, nothing else: PostgreSQL is found or installed by the programs themselves.
.DEFAULT_GOAL := help
.PHONY: help build dev test test-programs test-rooms test-faults lint fmt generate bench clean

GO ?= go
BIN := bin/postrider
# The race detector needs cgo and a C compiler; where there is none the tests run without it. So do bench, which measures, and cmd, whose tests
# drive a program that is built as it is shipped.
CC_FOUND := $(shell command -v $${CC:-cc} 2>/dev/null || command -v gcc 2>/dev/null || command -v clang 2>/dev/null)
RACE := $(if $(CC_FOUND),-race,)
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

build: ## Build bin/postrider
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/postrider

dev: build ## Run everything: database, service, demo endpoint, demo topic (Ctrl-C stops)
	@exec $(BIN) dev $(ARGS)

# The programs' tests wait, for restarts and for nodes to be called dead; those of the rooms compute. Side by side they take two thirds of the time.
test: ## Run all tests, against private PostgreSQL servers
	$(if $(RACE),,@echo "No C compiler found: the tests run without the race detector.")
	@$(MAKE) --no-print-directory -j 2 test-programs test-rooms

test-programs:
	$(GO) test -timeout 9m ./bench/... ./cmd/...

test-rooms:
	$(if $(RACE),CGO_ENABLED=1 )$(GO) test $(RACE) -timeout 9m $$($(GO) list ./... | grep -v -e '/bench$$' -e '/cmd/')

test-faults: ## Kill nodes and cut what they depend on, for half an hour, and prove that nothing is lost (docs/reliability.md)
	$(GO) test ./cmd/postrider -faults -count=1 -timeout 60m -v
	$(GO) test ./jobs -faults -count=1 -timeout 30m -v

lint: ## Check style, imports and common mistakes
	$(GO) run $(GOLANGCI) run ./...

fmt: ## Format the code
	$(GO) run $(GOLANGCI) fmt ./...

generate: ## Generate the REST API's types from server/openapi.yaml, and the policies' rows
	$(GO) generate ./...
	$(GO) test ./policy -run TestSeedSQL -update

bench: build ## Measure published and delivered events per second on this machine
	$(BIN) bench throughput

clean: ## Remove what was built
	rm -rf bin
