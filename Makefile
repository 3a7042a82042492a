CACHE    := $(or $(NRI_BLKIO_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nri-blkio)
FUZZTIME ?= 1m
MODEL_TIME ?= 1m
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
IMAGE    ?= registry.example/nri-blkio:$(VERSION)
LDFLAGS   = -s -w -X github.com/prometheus/common/version.Version=$(VERSION)

.DEFAULT_GOAL := help

.PHONY: demo test proof scenarios soak storage neighbour weights lint unit alerts apiserver e2e node bench fuzz generate manifests build image clean help

demo: ## boot a node, run three limited pods and a noisy neighbour, print requested / in force / measured
	cd test && go run ./demo

test: lint unit alerts apiserver e2e ## lint, unit tests with the race detector, tests of the manifests, e2e tests on the default node

proof: ## the whole matrix of kernels, containerds, runtimes and drivers; writes docs/reference/matrix.md, and what make weights writes
	cd test && NODE_MATRIX=full MATRIX_TABLE=$(CURDIR)/docs/reference/matrix.md WEIGHTS_TABLE=$(CURDIR)/docs/explanation/weights.md \
	  go test -count=1 -v -timeout 64h ./suite

scenarios: ## the table of docs/reference/scenarios-KERNEL.md, SCENARIO_TIME (60s) each; NODE_KERNEL chooses the kernel
	cd test && E2E_PROOF=1 E2E_RUN="$${E2E_RUN:-^TestScenarios$$}" SCENARIO_TIME=$(or $(SCENARIO_TIME),60s) \
	  SCENARIO_TABLE=$(CURDIR)/docs/reference/scenarios-$(or $(NODE_KERNEL),6.12).md go test -count=1 -v -timeout 9h ./suite

soak: ## SOAK_PODS (1000) pods while the plugin is killed and stopped and the runtime restarted; SOAK_SEED replays one
	cd test && E2E_PROOF=1 E2E_RUN='^TestSoak$$' SOAK_PODS=$(or $(SOAK_PODS),1000) go test -count=1 -v -timeout 5h ./suite

storage: ## the table of docs/reference/storage.md
	cd test && E2E_PROOF=1 E2E_RUN='^TestStorage|^TestCluster$$/^StorageOfPods$$' STORAGE_TABLE=$(CURDIR)/docs/reference/storage.md go test -count=1 -v -timeout 5h ./suite

neighbour: ## docs/images/neighbour.svg, the latency of a pod beside one that writes without end
	cd test && E2E_PROOF=1 E2E_RUN='^TestNeighbour$$' NEIGHBOUR_PLOT=$(CURDIR)/docs/images/neighbour.svg go test -count=1 -v -timeout 30m ./suite

weights: ## the tables of docs/explanation/weights.md and docs/images/weights.svg; E2E_RUN chooses among the tests
	cd test && E2E_PROOF=1 E2E_RUN="$${E2E_RUN:-^(TestNoisyNeighbour|TestShareFigures|TestPeriods|TestCostOverhead|TestUnpack|TestCalibrationsAgree)$$}" \
	  WEIGHTS_TABLE=$(CURDIR)/docs/explanation/weights.md go test -count=1 -v -timeout 5h ./suite

lint: ## golangci-lint, of the version in tools/go.mod, on both modules
	cd tools && go build -o $(CACHE)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	$(CACHE)/golangci-lint run ./...
	cd test && $(CACHE)/golangci-lint run ./...
	for os in darwin windows; do GOOS=$$os go vet ./cmd/... ./plugin/check ./plugin/migrate ./plugin/manifest ./plugin/enforce/plan ./policy/... || exit 1; done

unit: ## unit tests of both modules, with the race detector; MODEL_TIME (1m) of random events
	MODEL_TIME=$(MODEL_TIME) go test -race ./...
# e2e and suite need a node, apiserver an API server: here they have to compile, and no more. admission and chart
# run with apiserver: they share no memory, and building what they need with the race detector takes minutes.
	cd test && go vet ./... && go test -race $$(go list ./... | grep -vE '/test/(admission|apiserver|chart|e2e|suite)$$')

alerts: ## test the alerting rules with promtool
	CACHE=$(CACHE) test/alerts/run

apiserver: ## the Helm chart, and what a real API server says of deploy/, of the pages' objects, and by the admission policies
	cd test && go test -count=1 -timeout 45m ./admission ./chart ./apiserver # builds Helm and the API server first, unless the cache has them

e2e: ## e2e tests on a node; NODE_KERNEL, NODE_CONTAINERD, NODE_RUNTIME, NODE_DRIVER choose it
	cd test && go test -count=1 -v -timeout 84m ./suite

node: ## a node that stays up until it is interrupted, for single e2e tests: docs/testing.md
	cd test && go run ./node/cmd/node up --env $(CACHE)/node.env

bench: ## measure what the plugin costs, as root; writes the table of docs/reference/benchmarks.md
	cd test && go run ./bench

fuzz: ## each fuzz test, and random events of pods, for FUZZTIME (1m)
	MODEL_TIME=$(FUZZTIME) go test -race -count=1 -v -timeout 0 -run '^TestModel$$' ./plugin/node
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r f; do \
	  for t in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$f); do \
	    (cd $$(dirname $$f) && go test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x .) || exit 1; \
	  done; done

generate: ## compile the BPF programs; needs clang, llvm and libbpf-dev
	go generate ./blkio/writeback

manifests: ## the files of deploy/ that are made from the Helm chart, and the tables of docs/reference that are made from the types
	cd test && UPDATE_MANIFESTS=1 go test -count=1 -run '^TestManifests$$' ./chart
	UPDATE_REFERENCE=1 go test -count=1 -run '^TestReference$$' ./policy

build: ## bin/nri-blkio, static
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/nri-blkio ./cmd/nri-blkio

image: ## the container image; IMAGE names it
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

clean: ## remove bin/; the cache of the test node stays, `rm -r $(CACHE)` removes it
	rm -rf bin

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10
