# Two commands do everything on a fresh Debian 12, as root: `make run` and `make test`.
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# What is compiled is kept: each process of tests would compile all tests, for 15 s, and programs start 0.3 s later.
unexport PYTHONDONTWRITEBYTECODE

# Extras in the lock; the others name these, and koord itself with them.
LOCKED_EXTRAS := analysis cluster dev gpu grpc

# pyspark, which is no dependency.
SPARK := build/spark

# What takes the place of a guest in `make test-vm`, as BESIDE=test-pure.
BESIDE :=

# Processes that divide the tests without figures of the running kernel; the others have the machine to themselves. One
# more than CPUs: a test of the kernel waits for most of its time, for its turn too.
WORKERS := $(shell echo $$(($$(nproc) + 1)))
DIVIDED = $(if $(filter-out 0 1,$(WORKERS)),-n $(WORKERS) --dist worksteal)

.PHONY: setup install uninstall wheel deb image image-bcc release proto docs manifests dashboards run test test-alone test-divided test-kernel test-pure test-vm test-cluster test-cluster-guest test-spark lint bench bpf clean provision provision-test

setup: provision $(STAMP) bpf ## packages, virtual environment, BPF objects

provision:
	@deploy/provision.sh build run

provision-test:
	@deploy/provision.sh build run test vm

$(STAMP): requirements.lock pyproject.toml
	@echo "virtual environment: installing locked requirements into $(VENV)"
	@test -x $(PYTHON) || /usr/bin/python3 -m venv $(VENV)
	@$(PYTHON) -m pip install --quiet --require-hashes -r requirements.lock
	@$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

dashboards: $(STAMP) ## deploy/grafana/dashboards, from their code
	@$(PYTHON) -m deploy.grafana

bpf: $(STAMP)
	@$(PYTHON) -m probes.build

proto: $(STAMP) ## the messages of the agent's socket, of the runtime proxy, and of runtime and kubelet
	@$(PYTHON) -m grpc_tools.protoc -I api/proto --python_out=koordlet/serving --pyi_out=koordlet/serving koordlet.proto
	@$(PYTHON) -m grpc_tools.protoc -I api/proto --python_out=koordlet/runtime_proxy --pyi_out=koordlet/runtime_proxy \
	  hooked_cri.proto runtime_hooks.proto
	@$(PYTHON) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. koordlet/kubelet/cri.proto koordlet/kubelet/pod_resources.proto
	@$(PYTHON) -m grpc_tools.protoc -I api/proto --python_out=koordlet/nri --pyi_out=koordlet/nri nri.proto ttrpc.proto

docs: $(STAMP) ## the generated tables of the documents
	@$(PYTHON) -m docs.render

manifests: $(STAMP) ## deploy/manifests, from the chart
	@$(PYTHON) deploy/render.py
	@$(PYTHON) deploy/values_schema.py

run: setup ## observe this host until Ctrl-C
	@$(VENV)/bin/koordlet run --standalone

install: ## programs in /opt/koord, the agent as a systemd unit; starts nothing
	@deploy/install.sh

uninstall: ## the reverse; settings, state and logs stay
	@deploy/install.sh --uninstall

ifeq ($(KERNELS),all)
test: ## with KERNELS=all the kernel tests on every kernel too, and the tests that take no figures beside the guests
	@$(MAKE) --no-print-directory test-alone
	@$(MAKE) --no-print-directory test-vm BESIDE="test-divided WORKERS=2"
else
test: ## every test; those of the running kernel too when root
	@status=0; \
	  if [ "$$(id -u)" -eq 0 ]; then $(MAKE) --no-print-directory test-alone || status=1; fi; \
	  $(MAKE) --no-print-directory test-divided || status=1; \
	  exit $$status
endif

test-alone: provision-test $(STAMP) ## the tests of the running kernel that take figures
	@$(PYTHON) -m probes.build x86 arm64
	@FORCE_KERNEL_TESTS=1 $(PYTHON) -m pytest -m "kernel and not beside"

test-divided: provision-test $(STAMP) ## every test that takes no figures of the running kernel
	@$(PYTHON) -m probes.build x86 arm64
	@if [ "$$(id -u)" -eq 0 ]; then export FORCE_KERNEL_TESTS=1; fi; \
	  $(PYTHON) -m pytest -m "not vm and (beside or not kernel)" $(DIVIDED)

test-kernel: provision-test $(STAMP) ## the tests of the running kernel, which need root and a machine to themselves
	@$(PYTHON) -m probes.build x86 arm64
	@FORCE_KERNEL_TESTS=1 $(PYTHON) -m pytest -m kernel

test-pure: provision-test $(STAMP) ## the other tests
	@$(PYTHON) -m probes.build x86 arm64
	@$(PYTHON) -m pytest -m "not kernel and not vm" $(DIVIDED)

test-vm: provision-test $(STAMP) ## the kernel tests on every kernel of the matrix
	@$(PYTHON) -m probes.build
	@$(PYTHON) -m tests.vm $(if $(BESIDE),--beside "make --no-print-directory $(BESIDE)")

test-cluster: provision-test $(STAMP) ## a real node, and the client against a real API server; KUBEBUILDER_ASSETS has the binaries
	@test -n "$(KUBEBUILDER_ASSETS)" || { echo "set KUBEBUILDER_ASSETS to a folder with the binaries (docs/deploying.md)" >&2; exit 2; }
	@$(PYTHON) -m probes.build
	@KUBEBUILDER_ASSETS=$(abspath $(KUBEBUILDER_ASSETS)) $(PYTHON) -m pytest tests/cluster tests/cluster_e2e

test-cluster-guest: provision-test $(STAMP) ## the same inside a guest with cgroup v2
	@test -n "$(KUBEBUILDER_ASSETS)" || { echo "set KUBEBUILDER_ASSETS to a folder with the binaries (docs/deploying.md)" >&2; exit 2; }
	@$(PYTHON) -m probes.build
	@KUBEBUILDER_ASSETS=$(abspath $(KUBEBUILDER_ASSETS)) $(PYTHON) -m tests.cluster_e2e guest 6.12

test-spark: $(STAMP) $(SPARK)/.installed ## the questions of `koord-manager analyze`, asked by Spark too; a download of 450 MB
	@PYTHONPATH=$(SPARK) $(PYTHON) -m pytest tests/controllers/analysis -k spark

$(SPARK)/.installed: tests/controllers/analysis/spark.lock | $(STAMP)
	@deploy/provision.sh spark
	@rm -rf $(SPARK)
	@echo "pyspark: installing into $(SPARK)"
	@$(PYTHON) -m pip install --quiet --require-hashes --no-build-isolation --target $(SPARK) -r $<
	@touch $@

.PHONY: first-ten-minutes
first-ten-minutes: provision-test $(STAMP) ## what README and tour say, in a fresh clone, with the time of each command; needs root
	@$(PYTHON) -m tests.first_ten_minutes

lint: $(STAMP)
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check . && $(VENV)/bin/mypy && $(VENV)/bin/lint-imports

lock: $(STAMP) ## renew requirements.lock: versions and hashes, no index addresses
	@test -x $(VENV)/bin/pip-compile || $(PYTHON) -m pip install --quiet pip-tools
	@$(VENV)/bin/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --allow-unsafe --strip-extras $(LOCKED_EXTRAS:%=--extra %) --all-build-deps --no-header --output-file requirements.lock pyproject.toml
	@$(PYTHON) -m deploy.release --lock

wheel: $(STAMP) bpf ## dist/: the wheel of the last commit, built twice and compared
	@$(PYTHON) -m probes.build x86 arm64
	@$(PYTHON) -m deploy.release wheel

deb: $(STAMP) bpf ## dist/: the Debian package, with locked wheels
	@$(PYTHON) -m probes.build x86 arm64
	@$(PYTHON) -m deploy.release deb

image: $(STAMP) bpf ## dist/: the container image, built twice and compared; needs no daemon and no registry
	@$(PYTHON) -m probes.build x86 arm64
	@$(PYTHON) -m deploy.release image

image-bcc: $(STAMP) bpf ## dist/: the same with BCC, for kernels without BTF
	@$(PYTHON) -m probes.build x86 arm64
	@$(PYTHON) -m deploy.release image-bcc

release: $(STAMP) bpf ## dist/: wheel, wheelhouse, Debian package, images, bill of materials, SHA256SUMS
	@$(PYTHON) -m probes.build x86 arm64
	@$(PYTHON) -m deploy.release all

clean:
	rm -rf $(VENV) build dist probes/objects .mypy_cache .ruff_cache .pytest_cache
