# halognn: `make` lists the targets. Every recipe sources env.sh, which finds MPI, BLAS and METIS.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

ifneq ($(words $(CURDIR)),1)
$(error the path "$(CURDIR)" has a blank in it, which compiler flags cannot carry: move the repository)
endif
export HALOGNN_ROOT := $(CURDIR)
ENV   := source ./env.sh
QUIET := HALOGNN_QUIET=1 source ./env.sh
RUN   ?= run/demo
GOFILES := go.mod go.sum src/cmd/halognn/VERSION $(shell find src -name '*.go' -not -name '*_test.go' 2>/dev/null)
KERNELS := $(shell find kernels/cpu kernels/include kernels/Makefile -type f 2>/dev/null)
RELEASE := $(shell cat src/cmd/halognn/VERSION)
COMMIT  := $(shell git describe --always --exclude '*' --dirty 2>/dev/null)
VERSION := $(RELEASE)$(addprefix +,$(COMMIT))
LDFLAGS := -X main.commit=$(COMMIT)

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: deps build ## first success: generate a graph, partition it 4 ways, train on 4 ranks, show the result
	@$(QUIET); tests/demo.sh $(RUN)

.PHONY: test
test: deps deps-test build build/libhalognn_cuda_emulated.so ## everything: lint, unit tests, plain build, race detector, sanitizers, MPI (Open MPI and MPICH)
	@tests/all.sh

.PHONY: test-fast
test-fast: build ## while you work, in 3 minutes: formatting, vet, unit tests, smoke tests of the program
	@tests/all.sh fast

.PHONY: build
build: bin/halognn ## the program, bin/halognn

bin/halognn: $(GOFILES) build/libhalognn_cpu.a build/flags
	@$(ENV); go build -ldflags '$(LDFLAGS)' -o $@ ./src/cmd/halognn

build/libhalognn_cpu.a: $(KERNELS)
	@echo "building the C kernels"; $(QUIET); $(MAKE) --silent --no-print-directory -C kernels BUILD=$(CURDIR)/build

.PHONY: cuda
cuda: ## the CUDA kernels, build/libhalognn_cuda.so, by nvcc (NVCC=...); the program loads it when compute.device is cuda
	@$(QUIET); $(MAKE) --silent --no-print-directory -C kernels BUILD=$(CURDIR)/build cuda

CUDA_KERNELS := $(shell find kernels/cuda kernels/include -type f 2>/dev/null)
build/libhalognn_cuda_emulated.so: $(CUDA_KERNELS) kernels/Makefile
	@echo "building the CUDA kernels for an emulated device"; $(QUIET); $(MAKE) --silent --no-print-directory -C kernels BUILD=$(CURDIR)/build emulated

.PHONY: bench-gpu
bench-gpu: build cuda ## on a machine with a GPU: kernels beside the device's bandwidth, GEMM beside cuBLAS, a training step, PyG where it is installed
	@$(QUIET); profiling/bench_gpu.sh

# The flags of the last build: another MPI (HALOGNN_MPICC, a module) links the program again.
build/flags: FORCE
	@$(QUIET); mkdir -p build; flags="$$CGO_CFLAGS $$CGO_LDFLAGS"; [ "$$flags" = "$$(cat $@ 2>/dev/null)" ] || echo "$$flags" >$@

.PHONY: FORCE
FORCE:

PREFIX ?= /usr/local
INTO    = $(DESTDIR)$(abspath $(PREFIX))

.PHONY: install
install: build ## the program, man pages, completion, job scripts, inputs, docs and a module file below PREFIX (/usr/local); DESTDIR comes before it
	@install -d $(INTO)/bin $(INTO)/share/halognn/profiling $(INTO)/share/modulefiles/halognn
	@install -m 755 bin/halognn $(INTO)/bin/halognn
	@cp -R env.sh jobs inputs docs README.md CHANGELOG.md LICENSE $(INTO)/share/halognn/
	@install -m 755 $(filter-out %/bench.sh %/fastsample.sh %/bench_gpu.sh %/gpu_day.sh %/sanitize_gpu.sh, $(wildcard profiling/*.sh profiling/*.py)) $(INTO)/share/halognn/profiling/
	@ln -sfn ../../bin $(INTO)/share/halognn/bin
	@install -d $(INTO)/share/man/man1 && bin/halognn man $(INTO)/share/man/man1
	@install -d $(addprefix $(INTO)/share/, bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	@bin/halognn completion bash >$(INTO)/share/bash-completion/completions/halognn
	@bin/halognn completion zsh >$(INTO)/share/zsh/site-functions/_halognn
	@bin/halognn completion fish >$(INTO)/share/fish/vendor_completions.d/halognn.fish
	@if [ -f build/libhalognn_cuda.so ]; then install -d $(INTO)/lib; install -m 755 build/libhalognn_cuda.so $(INTO)/lib/; fi
	@sed -e 's|@PREFIX@|$(abspath $(PREFIX))|g' -e 's|@VERSION@|$(VERSION)|g' jobs/modulefile.in >$(INTO)/share/modulefiles/halognn/$(RELEASE)
	@rm $(INTO)/share/halognn/jobs/modulefile.in
	@echo "installed below $(INTO); with modules: module use $(abspath $(PREFIX))/share/modulefiles; module load halognn"

.PHONY: bench
bench: build ## the benchmarks of docs/results/performance.md, each beside the machine's own limit
	@$(QUIET); profiling/bench.sh

.PHONY: papers
papers: papers-all ## figures of SALIENT++ and MassiveGNN, on network hosts of this machine, into run/papers (3 hours, root); papers-NAME: one of them
papers-%: build
	@$(QUIET); go run ./profiling/papers $(PAPERS) $*

.PHONY: faults-nightly
faults-nightly: deps build ## 1000 faults injected at random (3 hours); SEED=n chooses others
	@$(QUIET); go test -v -tags faults -count=1 -timeout 10h ./tests/faults -args -faults 1000 -seed $${SEED:-$$(date +%Y%m%d)}

.PHONY: grid
grid: deps ## after a change of structure: every digest and row count beside those of BEFORE=revision (HEAD)
	@tests/grid.sh $(or $(BEFORE),HEAD)

.PHONY: shrink-nightly
shrink-nightly: deps deps-test build ## 2000 files that shrink under running jobs, in process and under both MPIs (1 hour); SEED=n chooses others
	@for mpi in openmpi mpich; do tests/shrink.sh $$mpi 1000 $${SEED:-$$(date +%Y%m%d)}; done

.PHONY: docs
docs: build ## write docs/config.md, and the sections of other pages that are made from tables in the code
	@bin/halognn config --markdown >build/config.md
	@mv build/config.md docs/config.md
	@$(QUIET); go test -count=1 -run 'AreDocumented$$' ./tests -update

.PHONY: fuzz
fuzz: deps build ## every reader of files fuzzed, TIME=6m each; TARGET= a part of a target's name for some only
	@tests/fuzz.sh $${TIME:-6m} $${TARGET:-}

.PHONY: deps
deps: ## install what building and running need and is not there (apt-get; elsewhere it says what to install)
	@tests/install.sh run

.PHONY: deps-test
deps-test:
	@tests/install.sh test

.PHONY: clean
clean: ## remove what was built and run here
	rm -rf bin build run
