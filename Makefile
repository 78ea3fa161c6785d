# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# The one place where people look for commands. Everything longer than a line
# lives in hack/, so that it can be read, linted and run by itself.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
PARALLEL ?= 2
FUZZTIME ?= 30s

# One set of build flags for every step, so that they share the build cache.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

BINARIES := spokelet-hub spokelet-agent kubectl-spokelet
COMMAND := github.com/spokelet/spokelet/internal/command

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build $(BINARIES) spokelet-helm spokelet-workers
build: $(BINARIES) spokelet-helm spokelet-workers ## Build the binaries into bin/.
# These have modules of their own, so that nothing of theirs is linked into the others.
spokelet-helm:
	cd helm && go build -p $(PARALLEL) -ldflags '-s -w' -o ../bin/$@ ./cmd/$@
spokelet-workers:
	cd workers && go build -p $(PARALLEL) -ldflags '-s -w -X github.com/spokelet/spokelet/workers/app.Version=$(VERSION)' -o ../bin/$@ ./cmd/$@
$(BINARIES):
	go build -p $(PARALLEL) -ldflags '-s -w -X $(COMMAND).Version=$(VERSION)' -o bin/$@ ./cmd/$@

.PHONY: images
images: ## Build the container images as tarballs, without Docker.
	cd e2e && go run ./cmd/images -version $(VERSION)

.PHONY: charts
charts: ## Package the Helm charts into bin/charts.
	hack/package-charts.sh $(VERSION)

.PHONY: generate
generate: tools ## Regenerate everything that is generated.
	hack/update-generated.sh

.PHONY: fmt
fmt: tools ## Format all Go code and the RPC definitions.
	hack/update-format.sh

.PHONY: lint
lint: bin/tools/golangci-lint ## Run golangci-lint, which has go vet in it, on every module.
	hack/verify-lint.sh

.PHONY: verify
verify: tools bin/tools/golangci-lint ## Run every static check; changes nothing.
	hack/verify.sh

.PHONY: check
check: tools bin/tools/golangci-lint bin/tools/gotestsum bin/tools/live bin/tools/times ## Run every check and every test, beside each other, as CI does.
	hack/check-all.sh
.PHONY: times
times: bin/tools/times ## Write where the time of the last "make check" went into CONTRIBUTING.md.
	bin/tools/times report --write CONTRIBUTING.md bin/times

.PHONY: test
test: test-unit test-live e2e ## Run all tests: by themselves, with real clusters, end to end.

.PHONY: test-unit test-workers test-long race
test-unit: bin/tools/gotestsum ## Run the tests of every module under the race detector.
	hack/test-unit.sh $(PARALLEL)
test-workers: bin/tools/gotestsum ## Run the tests of worker bundles, which test-unit does, too.
	hack/test-workers.sh $(PARALLEL)
test-long: bin/tools/gotestsum ## Run them with the full counts, and every fuzz target for FUZZTIME: before a release.
	SPOKELET_TEST_FULL=1 hack/test-unit.sh $(PARALLEL) 90m
	hack/fuzz.sh $(FUZZTIME) $(PARALLEL)
race: ## Repeat the tests of the concurrent packages, on 1, 2 and 4 CPUs.
	CGO_ENABLED=1 go test -race -p $(PARALLEL) -cpu 1,2,4 -count 10 ./tunnel/... ./hub/... ./agent/... ./provider/...

.PHONY: test-live
test-live: bin/tools/gotestsum bin/tools/live ## Run the tests that need real clusters; makes and removes them.
	hack/on-clusters.sh live hack/test-live.sh

.PHONY: test-fuzz
test-fuzz: ## Run every fuzz target for FUZZTIME (30s).
	hack/fuzz.sh $(FUZZTIME) $(PARALLEL)

.PHONY: clusters clusters-kind
clusters: ## Install and build what the clusters of the tests are made of.
	cd hack/clusters && go run ./cmd/clusters prepare
clusters-kind: ## Do so for clusters that kind makes.
	cd hack/clusters && go run ./cmd/clusters prepare --provider kind
.PHONY: inotify
inotify: ## Raise the kernel's limits of watched files, as three nodes of kind need it; as root.
	sysctl -w fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=524288

.PHONY: e2e e2e-kind
e2e: bin/tools/gotestsum ## Run the end-to-end tests against real clusters.
	hack/on-clusters.sh e2e hack/test-suites.sh join node:9 live,work,wrangler workers mcm sharing rest fault leave hostile
e2e-kind: bin/tools/gotestsum ## Run the first of them against clusters that kind makes.
	SPOKELET_CLUSTERS_PROVIDER=kind hack/on-clusters.sh e2e-kind hack/test-suites.sh join live

.PHONY: bench
bench: ## Run the benchmarks of docs/benchmarks.md; writes bin/bench.json.
	mkdir -p bin && cd e2e && go run ./cmd/bench -out ../bin/bench.json

.PHONY: demo demo-workers demo-put demo-down
demo: ## Start a hub and two clusters on this machine, and show what Spokelet does with them.
	cd e2e && go run ./cmd/demo up
demo-workers: ## As demo, and serve a script in both clusters (docs/workers.md).
	cd e2e && go run ./cmd/demo workers
demo-put: ## Store a folder for demo-workers: FROM=folder TO=account/script/version.
	@cd e2e && go run ./cmd/demo put "$(abspath $(FROM))" "$(TO)"
demo-down: ## Remove what the demos made; nothing else removes it.
	cd e2e && go run ./cmd/demo down

.PHONY: clean
clean: ## Remove bin/.
	rm -rf bin

# Tools are dependencies with versions of their own, apart from the product's.
.PHONY: tools
tools: bin/tools/.installed
bin/tools/.installed: hack/tools/go.mod hack/tools/go.sum
	cd hack/tools && GOBIN=$(CURDIR)/bin/tools go install -p $(PARALLEL) tool
	touch $@
bin/tools/golangci-lint: hack/tools/lint/go.mod hack/tools/lint/go.sum
	cd hack/tools/lint && GOBIN=$(CURDIR)/bin/tools go install -p $(PARALLEL) tool
	touch $@
# It says at the end of a long run which tests failed, and what they said.
bin/tools/gotestsum: hack/tools/gotestsum/go.mod hack/tools/gotestsum/go.sum
	cd hack/tools/gotestsum && GOBIN=$(CURDIR)/bin/tools go install -p $(PARALLEL) tool
	touch $@
# Ours, for running tests.
bin/tools/live bin/tools/times: bin/tools/%: FORCE
	go build -o $@ ./hack/$*
.PHONY: FORCE
FORCE:
