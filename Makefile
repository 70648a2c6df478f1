# Everything that people and CI run. `make help` lists it.
GO      ?= go
BIN     := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
# Tests: check has vetted them already, and nobody debugs a hundred binaries.
TESTFLAGS := -vet=off -ldflags=-w
# Without the pages that gRPC has for debugging. They are the last user of text/template, and the linker keeps
# every method of every type, a sixth of the binary, where that is (GoBGP brings gRPC).
TAGS    := grpcnotrace
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Packages of Debian that a browser needs, and the lab.
PAGE_DEBS := chromium-headless-shell fonts-dejavu-core
LAB_DEBS := iproute2 nftables keepalived systemd procps frr bird2 gobgpd iptables mmdebstrap
# A number of runs, not a time: with a time Go before 1.27 may fail at its end with
# "context deadline exceeded" though nothing was found (go.dev/issue/75804).
FUZZTIME ?= 40000x
SOAK     ?= 30m
RUNS     ?= 20
SPECS    ?= all
IMAGE    ?= lbd.dev/lbd:$(VERSION)
ARCHS    ?= amd64,arm64

.PHONY: help build image release generate check test beside page dashboard unit units gobgp mutate search lab interop controlplane cluster fuzz demo demo-box demo-tenants traefik bench benchhead benchfaults benchbgp benchring benchforward benchcluster benchservices benchmachines e2e soak clean deps

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16

# The same bytes from the same source, Go and VERSION, in whatever folder: no paths, and
# nothing of the state of the repository but VERSION and COMMIT.
build: ## build bin/lbd
	CGO_ENABLED=0 $(GO) build -tags '$(TAGS)' -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/lbd ./cmd/lbd

image: ## build the image for ARCHS into dist/lbd-image.tar
	cd packaging/release && $(GO) run . -root '$(CURDIR)' -only-image '$(CURDIR)/dist/lbd-image.tar' -image '$(IMAGE)' -arch '$(ARCHS)' \
		-version '$(VERSION)' -commit '$(COMMIT)' -epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}"
	@echo "$(IMAGE) is in dist/lbd-image.tar; to publish it: skopeo copy --all oci-archive:dist/lbd-image.tar docker://$(IMAGE)"

# Archives, packages, the image, the chart, definitions, a list of all modules and checksums. The
# same bytes from the same commit and Go.
release: ## build a release for ARCHS into dist/VERSION
	cd packaging/release && $(GO) run . -root '$(CURDIR)' -out '$(CURDIR)/dist/$(VERSION)' -arch '$(ARCHS)' \
		-version '$(VERSION)' -commit '$(COMMIT)' -epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}"

generate: ## packaging/crds from the types of api/v1alpha1
	cd tests/crds && $(GO) run ./cmd/generate $(CURDIR)

# tests/crds, tests/packaging and packaging/release are modules of their own: the generator, the
# code of an API server, Helm, kustomize and what makes packages are not in lbd.
check: ## gofmt, go vet, staticcheck, the CustomResourceDefinitions, kustomize and Helm, packages, systemd-analyze
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt: $$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	cd tests/crds && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test $(TESTFLAGS) -count=1 -timeout 15m ./...
	cd tests/packaging && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test $(TESTFLAGS) -count=1 -timeout 15m ./...
	cd packaging/release && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test $(TESTFLAGS) -count=1 -timeout 15m ./...
	@if command -v systemd-analyze >/dev/null; then sh systemd/verify.sh; elif [ "$$CI" = true ]; then echo "systemd-analyze is missing"; exit 1; fi

deps: ## install what the lab needs (Debian; root)
	@sh tests/deps.sh $(LAB_DEBS)

# The units mostly wait, so four packages run at once, and they bear a machine that does much else; what needs processors
# runs beside them, behind them in line. What measures times has the machine to itself.
# Each layer runs even if one before it failed: one run tells of all that is broken. The tests of
# Kubernetes (e2e) are for a release: to compile them takes longer than to run them.
test: deps check ## everything that CI runs (root)
	@sh tests/verdict.sh $(MAKE) --keep-going beside page lab interop controlplane cluster

# gobgp is the last: it only waits, and compiles with the race detector what units has by then.
beside:
	$(MAKE) --jobs=3 --output-sync=target units search fuzz gobgp BESIDE='timeout 30m nice -n 10'

unit: units gobgp ## unit tests, with the race detector but for those that look into GoBGP

units:
	$(GO) test $(TESTFLAGS) -race -p 4 -timeout 15m $$($(GO) list ./... | grep -v -e /tests/ -e /bgp/gobgp) ./tests/docs/... ./tests/previous/... ./tests/mutate/...

# GoBGP's own ListPath, by which tests look into a router, races with its sessions; and the
# detector would be most of what tests of memory measure. Their names say which they are.
gobgp:
	$(GO) test $(TESTFLAGS) -race -timeout 10m -skip '^Test(Routes|Memory)' ./internal/bgp/gobgp
	$(GO) test $(TESTFLAGS) -timeout 10m -run '^Test(Routes|Memory)' ./internal/bgp/gobgp

# An hour or two; with MUTANTS=20, or ONLY=internal/election, less.
MUTANTS ?= 200
mutate: ## change the code at random and see whether a test notices (root)
	$(GO) run ./tests/mutate -n $(MUTANTS) -only '$(ONLY)'

search: ## walk every state of a small group
	$(BESIDE) $(GO) test $(TESTFLAGS) -timeout 30m ./tests/search/... ./tests/sim/...

lab: deps build ## namespaces on this machine (root)
	LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) test $(TESTFLAGS) -count=1 -parallel 3 -timeout 20m ./tests/lab/...

interop: deps build ## BGP and BFD with FRR, BIRD and GoBGP in namespaces (root)
	LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) test $(TESTFLAGS) -count=1 -parallel 3 -timeout 15m ./tests/interop/...

# The first run builds Kubernetes from its sources into a cache outside the tree.
controlplane: deps build ## real etcd, kube-apiserver and kube-proxy in namespaces (root)
	cd tests/controlplane && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...
	cd tests/controlplane && $(GO) run ./cmd/build
	cd tests/controlplane && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) test $(TESTFLAGS) -count=1 -timeout 20m ./...

# The first run installs Debian into the cache too. No apt-get here for systemd-nspawn:
# it would upgrade the systemd of this computer.
cluster: deps build ## real nodes: systemd, containerd, kubelet and kubeadm (root)
	cd tests/cluster && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...
	cd tests/cluster && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./cmd/build
	cd tests/cluster && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) test $(TESTFLAGS) -count=1 -parallel 1 -v -timeout 30m ./...

# Not in CI: the first run builds Traefik, which takes half an hour. It fails where it cannot run.
traefik: deps build ## what tenants get by a real ingress controller: Traefik in a real hub (root)
	cd tests/controlplane && $(GO) vet -tags traefik . && $(GO) run $(STATICCHECK) -tags traefik .
	cd tests/controlplane && $(GO) run ./cmd/build -traefik
	cd tests/controlplane && CI=true LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) test -tags traefik $(TESTFLAGS) -count=1 -v -timeout 20m -run 'TestTraefik$$' .

# Its first run builds the tests of Kubernetes, and CoreDNS, into the same cache.
e2e: deps build ## Kubernetes' own tests of load balancers: SPECS=all, few, or an expression (root)
	cd tests/cluster && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./cmd/e2e -specs '$(SPECS)'

page: ## the page in headless Chromium, judged by axe-core (root the first time)
	@sh tests/deps.sh $(PAGE_DEBS)
	@command -v npm >/dev/null || sh tests/deps.sh npm
	cd tests/page && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test $(TESTFLAGS) -count=1 -timeout 10m ./...

# Nine minutes of a real control plane and a Prometheus, then npm and a browser. The lab leaves its
# data in dist, so that the second half can be repeated.
dashboard: deps build ## the pictures of the dashboard in docs, from a cluster in which things break (root)
	@sh tests/deps.sh $(PAGE_DEBS) prometheus
	@command -v npm >/dev/null || sh tests/deps.sh npm
	cd tests/controlplane && $(GO) run ./cmd/build
	cd tests/controlplane && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./cmd/dashboard -out $(CURDIR)/dist/dashboard
	cd tests/page/dashboard && npm ci && node draw.mjs $(CURDIR)/dist/dashboard

fuzz: ## a short run of every fuzz test
	$(BESIDE) sh tests/fuzz.sh $(FUZZTIME)

demo-box: deps build ## two boxes in front of masters that nobody names: added, drained, lost, and a box lost (root)
	@LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) test $(TESTFLAGS) -count=1 -v -run 'TestSite$$' ./tests/interop/box

demo: deps build ## three nodes, their faults, and what a client sees (root)
	@LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./tests/lab/cmd/demo

# Its first run builds Kubernetes into the same cache as controlplane.
demo-tenants: deps build ## a hub gives load balancers to two real clusters: joined, told apart, drained, failed over (root)
	@cd tests/controlplane && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./cmd/demo

# One after the other, since all have the whole machine: some hours. Each part stands by itself if
# another fails; the table and the chart at the head are made of what is in the file.
BENCHES := benchfaults benchbgp benchring benchforward benchservices benchmachines benchcluster
bench: ## all that follows, one after the other, and the head of docs/benchmarks.md (root)
	$(MAKE) --keep-going --jobs=1 $(BENCHES); failed=$$?; $(MAKE) benchhead && exit $$failed

benchhead: ## the table and the chart at the head of docs/benchmarks.md, from its other tables
	$(GO) test $(TESTFLAGS) ./tests/docs -run Summary -update

benchfaults: deps build ## the same faults on lbd and keepalived, into docs/benchmarks.md (root)
	LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./tests/lab/cmd/bench faults -runs $(RUNS) -out docs/benchmarks.md
	$(MAKE) benchhead

benchbgp: deps build ## faults of nodes that announce by BGP, into docs/benchmarks.md (root)
	LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./tests/lab/cmd/bench bgp -runs $(RUNS) -out docs/benchmarks.md

benchring: deps build ## what open connections survive and what that costs, into docs/benchmarks.md (root)
	LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./tests/lab/cmd/bench ring -out docs/benchmarks.md

benchforward: deps build ## what a LoadBalancer costs, beside HAProxy, into docs/benchmarks.md (root)
	@sh tests/deps.sh haproxy
	LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./tests/lab/cmd/bench forward -out docs/benchmarks.md

benchcluster: deps build ## real control planes in faults and upgrades, beside keepalived, into docs/benchmarks.md (root)
	cd tests/cluster && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./cmd/bench -out $(CURDIR)/docs/benchmarks.md

benchservices: deps build ## thousands of Services in a real control plane, into docs/benchmarks.md (root)
	cd tests/controlplane && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./cmd/bench services -out $(CURDIR)/docs/benchmarks.md

benchmachines: deps build ## Machines of Cluster API that go away, into docs/benchmarks.md (root)
	cd tests/controlplane && LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./cmd/bench machines -out $(CURDIR)/docs/benchmarks.md

soak: deps build ## random faults for SOAK (root)
	LBD_BIN=$(CURDIR)/$(BIN)/lbd $(GO) run ./tests/lab/cmd/soak -for $(SOAK)

clean: ## remove what was built
	rm -rf $(BIN)
