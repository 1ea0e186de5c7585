# halognn: `make` lists the targets. Every recipe sources env.sh, which finds MPI, BLAS and METIS.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

ifneq ($(words $(CURDIR)),1)
$(error the path "$(CURDIR)" has a blank in it, which compiler flags cannot carry: move it)
endif
export HALOGNN_ROOT := $(CURDIR)
ENV   := source ./env.sh
QUIET := HALOGNN_QUIET=1 source ./env.sh
RUN   ?= run/demo
GOFILES := go.mod go.sum src/cmd/halognn/VERSION \
           $(shell find src -name '*.go' -not -name '*_test.go' 2>/dev/null) \
           $(shell find src kernels -name '*.[ch]' 2>/dev/null) kernels/kernels.go \
           kernels/include/halognn_kernels.def
RELEASE := $(shell cat src/cmd/halognn/VERSION)
COMMIT  := $(shell git describe --always --exclude '*' --dirty 2>/dev/null)
VERSION := $(RELEASE)$(addprefix +,$(COMMIT))
ifeq ($(MPI),abi) # one build for every MPI of the standard ABI
export HALOGNN_MPICC := $(or $(HALOGNN_MPICC),mpicc_abi)
endif
LDFLAGS := -X main.commit=$(COMMIT)
MAKE_KERNELS = $(MAKE) --silent --no-print-directory -j$(shell nproc) -C kernels BUILD=$(CURDIR)/build

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: deps build ## first success: generate and partition a graph, train on 4 ranks, show results
	@$(QUIET); tests/demo.sh $(RUN)

.PHONY: test
test: deps deps-test build ## in 12 minutes: vet, unit tests, the program under MPI, kernels, 20 faults, guide
	@tests/all.sh test

.PHONY: test-all
test-all: deps deps-test-all build emulated ## the rest: races, sanitizers, both MPIs, Slurm, CUDA, PyTorch, 50 faults
	@tests/all.sh rest

.PHONY: test-fast
test-fast: build ## while you work, in 3 minutes: formatting, vet, unit and smoke tests
	@tests/all.sh fast

.PHONY: build
build: bin/halognn ## the program, bin/halognn

bin/halognn: $(GOFILES) build/flags
	@echo "building $@"; $(ENV); go build -ldflags '$(LDFLAGS)' -o $@ ./src/cmd/halognn

.PHONY: cuda
cuda: ## the CUDA kernels, by nvcc (NVCC=...), which compute.device=cuda loads
	@echo "building the CUDA kernels"; $(QUIET); $(MAKE_KERNELS) cuda

CUDA_KERNELS := $(shell find kernels/cuda kernels/include tests/emulate -type f 2>/dev/null)
.PHONY: emulated
emulated: build/libhalognn_cuda_emulated.so
build/libhalognn_cuda_emulated.so: $(CUDA_KERNELS) kernels/Makefile
	@echo "building the CUDA kernels for an emulated device"; $(QUIET); $(MAKE_KERNELS) emulated

.PHONY: sbom
sbom: build ## the Go modules in the program and their licences: dist/halognn.cdx.json
	@$(QUIET); mkdir -p dist; GOFLAGS= go run \
	  github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0 bin -json -licenses \
	  -version $(RELEASE) -output dist/halognn.cdx.json bin/halognn

.PHONY: bench-gpu
bench-gpu: build cuda ## on a GPU: kernels beside its bandwidth and cuBLAS, a step beside PyG
	@$(QUIET); profiling/lab/bench_gpu.sh

# The flags of the last build: another MPI (HALOGNN_MPICC, a module) links the program again.
build/flags: FORCE
	@$(QUIET); mkdir -p build; flags="$$GOFLAGS $$CGO_CFLAGS $$CGO_LDFLAGS"; \
	  [ "$$flags" = "$$(cat $@ 2>/dev/null)" ] || echo "$$flags" >$@

.PHONY: FORCE
FORCE:

PREFIX ?= /usr/local
INTO    = $(DESTDIR)$(abspath $(PREFIX))
SHARE   = $(INTO)/share

.PHONY: install
install: build ## program, man pages, docs, module file below PREFIX (/usr/local); DESTDIR
	@install -d $(INTO)/bin $(SHARE)/halognn/profiling $(SHARE)/modulefiles/halognn
	@install -m 755 bin/halognn $(INTO)/bin/halognn
	@cp -R env.sh jobs inputs docs README.md CHANGELOG.md LICENSE $(SHARE)/halognn/
	@install -m 755 profiling/*.sh profiling/*.py $(SHARE)/halognn/profiling/
	@ln -sfn ../../bin $(SHARE)/halognn/bin
	@install -d $(SHARE)/man/man1 && bin/halognn man $(SHARE)/man/man1
	@install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions \
	  $(SHARE)/fish/vendor_completions.d
	@bin/halognn completion bash >$(SHARE)/bash-completion/completions/halognn
	@bin/halognn completion zsh >$(SHARE)/zsh/site-functions/_halognn
	@bin/halognn completion fish >$(SHARE)/fish/vendor_completions.d/halognn.fish
	@if [ -f build/libhalognn_cuda.so ]; then \
	  install -d $(INTO)/lib; install -m 755 build/libhalognn_cuda.so $(INTO)/lib/; fi
	@sed -e 's|@PREFIX@|$(abspath $(PREFIX))|g' -e 's|@VERSION@|$(VERSION)|g' \
	  jobs/modulefile.in >$(SHARE)/modulefiles/halognn/$(RELEASE)
	@rm $(SHARE)/halognn/jobs/modulefile.in
	@echo "installed below $(INTO); with modules:" \
	  "module use $(abspath $(PREFIX))/share/modulefiles; module load halognn"

.PHONY: bench
bench: build ## the benchmarks of docs/results/performance.md, each beside the machine's own limit
	@$(QUIET); profiling/lab/bench.sh

.PHONY: papers
papers: papers-all ## figures of two papers, into run/papers (3 hours, root); papers-NAME: one
papers-%: build
	@$(QUIET); go run ./profiling/lab/papers $(PAPERS) $*

.PHONY: faults-nightly
faults-nightly: deps build ## 1000 faults injected at random (3 hours); SEED=n chooses others
	@$(QUIET); go test -v -tags $$HALOGNN_TAGS,faults -count=1 -timeout 10h ./tests/faults \
	  -args -faults 1000 -seed $${SEED:-$$(date +%Y%m%d)}

.PHONY: grid
grid: deps ## after a change of structure: digests and row counts beside those of BEFORE=revision
	@tests/grid.sh $(or $(BEFORE),HEAD)

.PHONY: shrink-nightly
shrink-nightly: deps deps-test-all build ## 2000 files that shrink under jobs (1 hour); SEED=n: others
	@for mpi in openmpi mpich; do tests/shrink.sh $$mpi 1000 $${SEED:-$$(date +%Y%m%d)}; done

.PHONY: matrix
matrix: build ## train every combination of docs/combinations.md: one digest for each group
	@$(QUIET); go test -v -count=1 -timeout 2h -run 'TestMatrix$$' ./tests -args -cells 0

.PHONY: wheel
wheel: build ## dist/*.whl: the Python package with the program in it
	@rm -rf python/build python/halognn/bin && install -d dist python/halognn/bin
	@install -m 755 bin/halognn python/halognn/bin/
	@python3 -m pip wheel --quiet --no-deps --wheel-dir dist ./python --config-settings=--build-option=--plat-name=$$( \
	  python3 -c 'import sysconfig; print(sysconfig.get_platform().translate({45: 95, 46: 95}))')
	@rm -rf python/build python/halognn/bin; ls dist/*.whl

.PHONY: docs
docs: build ## write docs/config.md and what else is made from tables in the code
	@bin/halognn config --markdown >build/config.md
	@mv build/config.md docs/config.md
	@$(QUIET); go test -count=1 -run 'AreDocumented$$' ./tests -update

.PHONY: fuzz
fuzz: deps build ## every reader of files fuzzed, TIME=6m each; TARGET=part of a name: some only
	@tests/fuzz.sh $${TIME:-6m} $${TARGET:-}

.PHONY: deps
deps: ## install what building and running need (apt-get; elsewhere it says what to install)
	@tests/install.sh run

.PHONY: setup-kaminpar
setup-kaminpar: ## the wheel for `partition --method kaminpar`, into build/kaminpar, where env.sh finds it
	@python3 -m venv build/kaminpar && build/kaminpar/bin/pip install --quiet kaminpar
	@build/kaminpar/bin/python3 -c 'import kaminpar; print("KaMinPar", kaminpar.__version__)'

.PHONY: deps-test deps-test-all
deps-test:
	@tests/install.sh test
deps-test-all:
	@tests/install.sh test-all
	@tests/abi.sh install

.PHONY: clean
clean: ## remove what was built and run here
	rm -rf bin build run
