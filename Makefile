# `make dev` and `make test` need Go, make and PostgreSQL 15 or newer, which they fetch on Debian and Ubuntu.
.DEFAULT_GOAL := help
.PHONY: help build dev test test-race test-faults test-long lint lint-openapi vulncheck fmt generate bench screenshots clean

GO ?= go
BIN := bin/postrider
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

build: ## Build bin/postrider
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/postrider

dev: build ## Run everything: database, service, demo endpoint, demo topic (Ctrl-C stops)
	@exec $(BIN) dev $(ARGS)

# Go begins with the packages that it is told of first: those that take longest, so that none of them is left over at the end. vet is `make lint`'s, with more checks than here.
test: ## Run all tests, against private PostgreSQL servers
	$(GO) test -vet=off -timeout 9m ./cmd/... ./bench ./jobs ./web ./server ./...

# With the race detector everything that computes takes three times as long. bench, which measures, and cmd, whose tests drive a program that is
# built as it is shipped, have nothing for it to see.
test-race: ## The same with the race detector, which needs a C compiler (7 minutes more)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m $$($(GO) list ./... | grep -v -e '/bench$$' -e '/cmd/')

test-faults: ## Kill nodes and cut what they depend on, for half an hour, and prove that nothing is lost (docs/internals/reliability.md)
	$(GO) test ./cmd/postrider -faults -count=1 -timeout 60m -v
	$(GO) test ./jobs -faults -count=1 -timeout 30m -v

# `make test` runs their seeds, and what was found before, like any other test.
FUZZ_TIME ?= 60s
test-long: ## Feed every parser made-up input, FUZZ_TIME (60s) each: most of an hour
	@for package in $$($(GO) list ./...); do \
	  for name in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    echo "$$package $$name"; $(GO) test $$package -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZ_TIME) -parallel 2 || exit 1; \
	  done; \
	done

lint: ## Check style, imports and common mistakes
	$(GO) run $(GOLANGCI) run ./...
	@! LC_ALL=C.UTF-8 grep -nE '^.{121}' $$(git ls-files '*.sql') || { echo "wrap these lines of SQL at 120 columns"; exit 1; }
	$(GO) run $(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yaml

lint-openapi: ## Check the OpenAPI document with Redocly's and Spectral's rules, which needs Node.js
	POSTRIDER_CI=1 $(GO) test ./cmd/postrider -run TestOpenAPIFilePassesLinters -count=1

vulncheck: ## Look for known vulnerabilities in what is called
	$(GO) run $(GOVULNCHECK) ./...

fmt: ## Format the code
	$(GO) run $(GOLANGCI) fmt ./...

generate: ## Generate the policies' rows, reference pages and THIRD_PARTY_NOTICES
	$(GO) test ./policy -run TestSeedSQL -update
	$(GO) test ./catalog/spec -run TestReferencePage -update
	$(GO) test ./catalog/spec -run TestReferencePage -update
	$(GO) test ./cmd/postrider -run TestReferencePages -update-reference
	$(GO) test ./cmd/postrider -run TestThirdPartyNotices -update-notices

bench: build ## Measure published and delivered events per second on this machine
	$(BIN) bench throughput

screenshots: ## Make the pictures in docs/img of a demo shop, which needs Chromium
	@mkdir -p docs/img
	$(GO) test ./web -run TestScreenshots -count=1 -timeout 15m -args -screenshots $(CURDIR)/docs/img

clean: ## Remove what was built
	rm -rf bin
