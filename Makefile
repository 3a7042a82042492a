CACHE    := $(or $(NRI_BLKIO_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nri-blkio)
FUZZTIME ?= 1m
MODEL_TIME ?= 1m
# The first seed of the random events in `make unit`, so that a run is about the commit. `make fuzz` has other seeds.
MODEL_SEED ?= 2798510188
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# The chart and the program are released together.
RELEASE  := $(shell sed -n 's/^version: //p' deploy/helm/nri-blkio/Chart.yaml)
REPOSITORY ?= registry.example/nri-blkio
IMAGE    ?= registry.example/nri-blkio:$(VERSION)
LDFLAGS   = -s -w -X github.com/prometheus/common/version.Version=$(VERSION)

.DEFAULT_GOAL := help

.PHONY: demo test checks proof table lint unit alerts apiserver e2e node fuzz generate build image release reproduce help

demo: ## boot a node, where one pod slows down another; why, a class, and a rejected mistake
	cd test && CGO_ENABLED=0 go run -v -trimpath ./demo

test: ## lint, unit tests with the race detector, tests of the manifests, e2e tests on the default node
	$(MAKE) -j2 checks e2e

# Beside the node, which leaves a third of two processors: its tests also wait. It measures rates, so it goes first; but checks have
# deadlines of seconds, so they get a tenth while it is busy.
checks:
	for target in lint unit alerts apiserver; do nice -n 10 $(MAKE) $$target || exit 1; done

# A node has an equal share of the time that -timeout leaves, and what hangs on it is reported before that.
proof: ## the whole matrix of kernels, containerds, runtimes and drivers; writes docs/reference/matrix.md, and the tables of T=weights
	cd test && NODE_MATRIX=full go test -count=1 -v -timeout 72h ./suite

table: ## measure a table of the pages again: T=scenarios, storage, neighbour, weights, compare, depths, soak; docs/testing.md
	cd test && TABLE=$(or $(T),$(error T is the name of the table)) go test -count=1 -v -timeout 9h ./suite

.PHONY: compare
compare: ## measure containerd's blockio class beside our limits, for docs/explanation/comparison.md
	$(MAKE) table T=compare

lint: ## golangci-lint, of the version in tools/go.mod, on all modules
	cd tools && go build -o $(CACHE)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	$(CACHE)/golangci-lint run ./...
	cd test && $(CACHE)/golangci-lint run ./...
	cd tools/release && $(CACHE)/golangci-lint run ./...
	for os in darwin windows; do GOOS=$$os go vet ./cmd/... ./plugin/check ./plugin/manifest ./plugin/enforce/plan ./policy/... || exit 1; done

unit: ## unit tests of all modules, with the race detector; MODEL_TIME (1m) of random events
	MODEL_SEED=$(MODEL_SEED) MODEL_TIME=$(MODEL_TIME) go test -race -timeout 45m $$(go list ./... | grep -v /costsim$$)
# Each simulation is in one goroutine, and takes minutes with the race detector: 500 s on a busy machine.
	go test -timeout 45m ./plugin/iocost/costsim
# The folders of e2e and suite need a node, apiserver an API server: here they have to compile, and no more. admission and chart
# run with apiserver: they share no memory, and building what they need with the race detector takes minutes.
	cd tools/release && go vet ./... && go test ./...
	cd test && go vet ./... && go test -race -timeout 45m $$(go list ./... | grep -vE '/test/(admission|alerts|apiserver|chart|e2e/(limits|writeback|weights|cluster|deploy)|suite)$$')

alerts: ## test the rules for Prometheus, and the queries of the dashboard, with promtool
	cd test && go test -count=1 ./alerts # downloads Debian's package of Prometheus first, unless the cache has it

apiserver: ## the Helm chart, and what a real API server says of deploy/, of the pages' objects, and by the admission policies
	cd test && go test -count=1 -timeout 45m ./admission ./chart ./apiserver # builds Helm and the API server first, unless the cache has them

e2e: ## e2e tests on a node; NODE_KERNEL, NODE_ENGINE, NODE_RUNTIME, NODE_DRIVER choose it, E2E_PART and E2E_RUN the tests
	cd test && go test -count=1 -v -timeout 80m ./suite # the one deadline: what runs on the node ends before that, with a report

node: ## a node that stays up until it is interrupted, for single e2e tests: docs/testing.md
	cd test && go run ./node/cmd/node up --env $(CACHE)/node.env

fuzz: ## each fuzz test, and random events of pods, for FUZZTIME (1m)
	MODEL_TIME=$(FUZZTIME) go test -race -count=1 -v -timeout 0 -run '^TestModel$$' ./plugin/node
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r f; do \
	  for t in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$f); do \
	    (cd $$(dirname $$f) && go test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x .) || exit 1; \
	  done; done

generate: ## what is made from the Helm chart and from the types in deploy/ and docs/; with BPF=1 also the BPF programs, by clang
	$(if $(BPF),go generate ./blkio/bpf)
	cd test && UPDATE_ADMISSION=1 go test -count=1 -run '^TestFiles$$' ./admission/policies
	cd test && UPDATE_DASHBOARD=1 go test -count=1 -run '^TestFile$$' ./dashboard
	cd test && UPDATE_MANIFESTS=1 go test -count=1 -run '^TestManifests$$' ./chart
	UPDATE_REFERENCE=1 go test -count=1 -run '^TestReference$$' ./policy

build: ## bin/nri-blkio, static
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/nri-blkio ./cmd/nri-blkio

image: ## the container image; IMAGE names it
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

release: ## all files of a release in dist/, of the commit; REPOSITORY is where the image is going to be
	@git diff --quiet HEAD || { echo 'make release: there are changes that are not committed' >&2; exit 1; }
	cd tools/release && go build -trimpath -ldflags '-s -w' -o $(CACHE)/release/ tool
# goreleaser wants a tag and a remote, which a clone for a test has not. The workflow compares the tag.
	PATH="$(CACHE)/release:$$PATH" GORELEASER_CURRENT_TAG=v$(RELEASE) \
	  GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/nri-blkio/nri-blkio \
	  goreleaser release --clean --skip=announce,publish,validate
	cd test && go run ./release -image $(REPOSITORY)

reproduce: ## make the release in dist/ again, in a clone elsewhere, and compare the checksums; with another GOCACHE it compiles all again
	dir=$$(mktemp -d) && git clone -q . $$dir/clone && \
	  git -C $$dir/clone checkout -q $$(sed 's/.*"commit":"\([0-9a-f]*\)".*/\1/' dist/metadata.json) && $(MAKE) -C $$dir/clone release && \
	  diff dist/SHA256SUMS $$dir/clone/dist/SHA256SUMS && rm -rf $$dir

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10
