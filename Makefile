# Every verb works in a fresh clone. `make` alone lists them.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# FUZZTIME is how long each fuzz target runs, as go test -fuzztime takes it.
FUZZTIME ?= 10s
# TESTFLAGS is added to every go test of `make test`, `test-long` and `e2e`, for example -v or -run.
TESTFLAGS ?=
# LABS is how many labs of the scenarios stand at a time: they wait most of theirs.
LABS     ?= 6
# BENCHFLAGS is given to the program of `make bench-dns` and `make bench-enforcer`,
# for example -only cached -rounds 3, or -help.
BENCHFLAGS ?=
# DATAPLANE is the dataplane of the agents of `make demo`: iptables or nftables, for which the
# demo's node has neither iptables nor ipset. The tests are of both, with DATAPLANE one alone.
DATAPLANE ?=
export DATAPLANE
# NIGHTLY=1 has `make test-long` and `make e2e` leave nothing out, as `make test-nightly` does.
NIGHTLY  ?=
export NIGHTLY
# KEEP=1 leaves the demo standing until Ctrl-C, and the cluster of `make e2e`
# until `make e2e-clean`; a cluster that stands is used.
KEEP     ?=

# sudo drops the usual place of Go from PATH, su those of the network programs.
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin
# A clone of another user's has no version control stamp that git would give out. With -trimpath and
# without cgo, programs, images and tests share what the compiler made of the libraries.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false -trimpath)
export CGO_ENABLED ?= 0

programs  := ip nft iptables ipset conntrack
# Real DNS clients, load, and a browser for the page, for `make test-nightly`.
clients   := musl-gcc busybox node python3 dig nslookup dnsmasq dnsperf curl java javac systemd-resolved nscd openvswitch-switch \
	chromium /usr/include/ares.h /usr/lib/python3/dist-packages/requests
clustered := $(programs) runc host-local nsenter br_netfilter
scenarios := ./e2e/scenarios
kube      := ./e2e/kube
modules   := $(filter-out tools,$(patsubst %/go.mod,%,$(wildcard */*/go.mod */go.mod)))
# Time passes for the scenarios while the other tests compute.
waiting    = $(GO) test -count=1 -vet=off -timeout 25m -parallel $(LABS) $(TESTFLAGS) $(scenarios)
keep      := $(filter-out 0 no,$(KEEP))
tool      := $(GO) tool -modfile=tools/go.mod
have       = $(sort $(dir $(shell grep -rlE --include='*_test.go' '^func $(1)[A-Z]' .)))

.PHONY: help build test test-long test-nightly figures release e2e e2e-tools e2e-up e2e-clean image demo demo-clean lint generate pictures vendor-page verify bench bench-dns bench-enforcer fuzz clean need-go need-root

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: need-go ## build the agent, bin/namegate, and the plugin of kubectl: bin/kubectl-namegate
	$(GO) build -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/namegate ./cmd/kubectl-namegate

# packages are those of the tests that are not on a cluster, nor scenarios.
packages   = $$($(GO) list ./... | grep -v -e e2e/scenarios -e e2e/kube)
# racing are those of them whose tests may run goroutines that share memory, as far as code tells.
racing     = $$($(GO) run ./e2e/racing $(packages))
# beside are the modules that `make test-long` tests if a change concerns them. release is tested by its
# own verb, golden files have the answers of other modules, and the rest is tested nightly. If the change
# cannot be read, all of them are tested.
beside    := charts/chartstest crds/schematest e2e/conformance image
changed    = $(if $(NIGHTLY),$(filter-out release,$(modules)),$$(e2e/changed $(beside) || echo $(beside)))

# together runs scenarios while a recipe computes: $(call together,FLAGS OF SCENARIOS,COMMANDS). run in
# them fails the verb at the end.
define together
@mkdir -p bin; failed=; \
run() { echo "$$@"; "$$@" || failed=1; }; \
echo "in the background, printed at the end: $(waiting) $(1)"; \
$(waiting) $(1) >bin/scenarios.log 2>&1 & background=$$!; \
$(2); \
wait $$background || failed=1; cat bin/scenarios.log; \
[ -z "$$failed" ] || { echo "make $@: some tests failed, see above" >&2; exit 1; }
endef

test: need-root need-go ## run the tests for a change: -short, without the race detector, and on the kernel (root)
	@e2e/prepare $(programs) br_netfilter
	$(call together,-short,run nice -n 5 $(GO) test -short -vet=off -count=1 -timeout 25m $(TESTFLAGS) $(packages))

test-long: need-root need-go ## run the other tests of a change: long ones, with the race detector, modules beside this one (root)
	@e2e/prepare $(programs) $(if $(NIGHTLY),$(clients),dnsperf) gcc br_netfilter
	$(call together,$(if $(NIGHTLY),,-left-out),\
	run nice -n 5 env CGO_ENABLED=1 $(GO) vet -race ./...; \
	run nice -n 5 env CGO_ENABLED=1 $(GO) test -race -vet=off -count=1 -timeout 25m $(TESTFLAGS) $(racing); \
	$(if $(NIGHTLY),run nice -n 5 $(GO) test -vet=off -count=1 -timeout 25m $(TESTFLAGS) $(packages);) \
	for m in $(changed); do echo "in $$m:"; run nice -n 5 $(GO) -C $$m test -vet=off -count=1 -timeout 20m $(TESTFLAGS) ./...; done)

test-nightly: ## run every test, with all rows, clients and seeds: `test-long` and `e2e` without their selection (root)
	@$(MAKE) test-long NIGHTLY=1
	@$(MAKE) e2e NIGHTLY=1

e2e: need-root build e2e-tools ## scenarios on a real cluster of two nodes (root; KEEP=1 leaves it standing)
	@e2e/prepare $(clustered)
	@image/build dev bin/namegate-image.tar
	@failed=; \
	KEEP=$(keep) $(GO) test -count=1 -vet=off -timeout 55m -parallel 4 $(TESTFLAGS) $(kube) || failed=1; \
	[ -n "$(keep)" ] || bin/cluster/stand down; \
	[ -z "$$failed" ] || { echo "make e2e: some tests failed, see above" >&2; exit 1; }

figures: need-root need-go ## run the verbs of CI and write what each one runs into CONTRIBUTING.md (root)
	@$(GO) run ./e2e/testrun -document CONTRIBUTING.md demo test test-long e2e

e2e-tools: need-go ## build Kubernetes and what else a cluster consists of, once (needs minutes)
	@e2e/cluster/tools/build bin/cluster
	@CGO_ENABLED=0 $(GO) build -o bin/cluster/ ./e2e/cluster/stand

e2e-up: need-root e2e-tools ## bring a cluster up and let it stand: bin/cluster/stand says how to use it (root)
	@e2e/prepare $(clustered)
	@bin/cluster/stand up

e2e-clean: need-root need-go ## remove the cluster, also what a killed run left behind (root)
	@CGO_ENABLED=0 $(GO) build -o bin/cluster/ ./e2e/cluster/stand
	@bin/cluster/stand down

image: need-go ## build the agent's container image as a tarball: bin/namegate-image.tar (Debian)
	@image/build $(VERSION) bin/namegate-image.tar

release: need-go ## build and check the files of a release in bin/release (Debian; VERSION=v1.2.3 without a tag)
	@e2e/cluster/tools/build bin/cluster helm
	@HELM=$(CURDIR)/bin/cluster/helm release/build $(VERSION) bin/release
	@RELEASE=$(CURDIR)/bin/release VERSION=$(VERSION) $(GO) -C release test -count=1 $(TESTFLAGS) .

demo: need-root build ## a tour on the real kernel, in a few seconds (root; KEEP=1 leaves it standing)
	@e2e/prepare $(programs) $(if $(keep),dig curl)
	@$(GO) build -o bin/demo ./e2e/demo
	@exec bin/demo $(if $(keep),-keep)

demo-clean: need-root need-go ## remove what killed demos and tests left behind (root)
	@$(GO) build -o bin/demo ./e2e/demo
	@exec bin/demo -clean

lint: need-go verify ## check format, vet, the linters of .golangci.yml, generated files, the tests for arm64, and the plugin for macOS and Windows
	@unformatted=$$(gofmt -l agent audit charts cmd console crds docs e2e enforcer image kernel policy proxy release share source stats status testkit); \
	[ -z "$$unformatted" ] || { echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	@# vet type-checks the tests too.
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	$(tool) golangci-lint run
	@# The benchmarks are a module without tests, which would build them.
	$(GO) -C e2e/bench vet ./...
	@for os in darwin windows; do GOOS=$$os $(GO) build -o /dev/null ./cmd/kubectl-namegate || exit 1; done

# golden are the modules that write a library's answers into golden files of this one. Their
# tests, TestGolden, fail if a file is stale.
golden     = e2e/matchpattern e2e/clusternetworkpolicy

generate: need-go ## write the CRD manifests, the deepcopy code, the apply configurations, the chart's table of values and the golden files of libraries' answers anew
	$(tool) controller-gen object crd applyconfiguration paths=./crds/v1alpha1 output:object:dir=crds/v1alpha1 output:crd:dir=crds
	cp crds/namegate.io_*.yaml charts/namegate/crd/
	$(GO) -C charts/chartstest test -count=1 -run '^TestDocumentedValues$$' . -update
	for m in $(golden); do $(GO) -C $$m test -count=1 -run '^TestGolden$$' . -update || exit 1; done

pictures: need-root need-go ## take the pictures of docs/images anew: the page of the demo, in Chromium (root)
	@e2e/prepare $(programs) chromium
	$(GO) -C e2e/browser test -count=1 -run '^TestDemo$$' $(TESTFLAGS) . -pictures ../../docs/images

vendor-page: ## fetch the npm packages of the page anew, as console/web/page/vendor/versions.txt has them (npm)
	@console/web/fetch-vendor

verify: need-go ## check that generated files are current
	@new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	$(tool) controller-gen object crd paths=./crds/v1alpha1 output:object:dir="$$new" output:crd:dir="$$new" || exit 1; \
	(for made in crds/v1alpha1/zz_generated.deepcopy.go crds/namegate.io_*.yaml; do \
	  diff -u "$$made" "$$new/$${made##*/}" || exit 1; done) || \
	{ echo "generated files are not current; run: make generate" >&2; exit 1; }
	@old=$$(mktemp -d); mv crds/applyconfiguration "$$old/"; trap 'rm -rf crds/applyconfiguration; mv "$$old/applyconfiguration" crds/; rm -rf "$$old"' EXIT; \
	$(tool) controller-gen applyconfiguration paths=./crds/v1alpha1 && diff -ru -x '*_test.go' "$$old/applyconfiguration" crds/applyconfiguration || \
	{ echo "generated files are not current; run: make generate" >&2; exit 1; }

bench: need-go ## run the Go benchmarks (as root those of the kernel seams too)
	$(GO) test -run '^$$' -bench . -benchmem $(call have,Benchmark)

bench-dns: need-root build ## measure DNS beside CoreDNS, dnsmasq and an echo, one JSON line a figure (root)
	@e2e/prepare $(programs) dnsperf dnsmasq
	@e2e/cluster/tools/build bin/cluster coredns
	@$(GO) -C e2e/bench build -o ../../bin/bench-dns ./dns
	@exec nice -n -10 bin/bench-dns $(BENCHFLAGS)

bench-enforcer: need-root build ## measure connections through the rules, changes and restarts, one JSON line a figure (root)
	@e2e/prepare $(programs)
	@$(GO) -C e2e/bench build -o ../../bin/bench-enforcer ./enforcer
	@exec nice -n -10 bin/bench-enforcer $(BENCHFLAGS)

fuzz: need-go ## run each fuzz target for FUZZTIME
	@failed=; \
	for dir in $(call have,Fuzz); do \
		for target in $$($(GO) test -list '^Fuzz' $$dir | grep ^Fuzz); do \
			echo "$$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$dir || failed="$$failed $$target"; \
		done; \
	done; \
	[ -z "$$failed" ] || { echo "make fuzz: failed:$$failed" >&2; exit 1; }

clean: ## remove what the other verbs built
	rm -rf bin coverage.out

need-go:
	@command -v $(GO) >/dev/null || { echo "make: no Go in PATH; install Go 1.26 from https://go.dev/dl/" >&2; exit 1; }

need-root:
	@[ "$$(id -u)" = 0 ] || { echo "make: this makes network namespaces and needs root; run it with sudo" >&2; exit 1; }
