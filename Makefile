# Every target sets up what it needs: a fresh clone and Python 3.11+ are enough (make setup names what is missing).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

.PHONY: help setup demo check test coverage test-long bench lint docs cluster generate test-versions locks images sbom release clean
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/.done: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11+ is needed: install it, or say PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "Python's venv is missing: sudo apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo]' --group dev
	@touch $@

setup: $(VENV)/.done ## .venv with everything

generate: setup ## the code generated from the .proto files
	$(BIN)/python -m protos.generate

demo: setup ## a few hundred pods of a real trace and a gang on an embedded cluster
	$(BIN)/gangshare demo $(ARGS)

lint: setup ## ruff, mypy, import contracts, generated files fresh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m protos.generate --check

docs: setup ## the handbook as a site: build/site/index.html; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build $(ARGS)

check: setup ## before each commit, in seconds: format, ruff, mypy, import contracts, the tests of what changed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@tests=$$($(BIN)/python -m tests.changed) && set -- $$tests && \
	case $$# in 0) ;; [1-8]) $(BIN)/pytest $$tests;; *) $(BIN)/pytest --numprocesses=auto --dist=loadfile $$tests;; esac

# The files that wait longest come first, and are not put in another order.
FAST = tests/scenarios tests/contract tests/sim tests/property tests/fuzz tests/unit
SPREAD = --dist=loadfile --no-loadscope-reorder

# Most of these tests wait more than they compute, so there is one worker more than cores.
WORKERS ?= $(shell expr $$(nproc) + 1)
# Files of tests on the real cluster run side by side, each worker on a cluster of its own.
CLUSTERS ?= 2

test: setup ## all tests: what needs no cluster on all cores, then those on the real cluster on two clusters (CLUSTERS=1: one)
ifdef ARGS
	$(BIN)/pytest $(ARGS)
else
	$(BIN)/pytest --numprocesses=$(WORKERS) $(SPREAD) --durations=15 $(FAST)
	$(BIN)/pytest --numprocesses=$(CLUSTERS) $(SPREAD) --durations=25 tests/cluster
endif

coverage: setup ## what of the code the tests run without the real cluster reach; takes them three times as long
	$(BIN)/pytest --cov --cov-report=term $(FAST) $(ARGS)

test-long: setup ## what takes too long for every day: the same faults more often, and for longer
ifdef ARGS
	$(BIN)/pytest -m long $(ARGS)
else
	$(BIN)/pytest -m long --numprocesses=auto --durations=15 $(FAST)
	$(BIN)/pytest -m long --durations=5 tests/cluster
endif

test-versions: setup ## the core of the real-cluster tests on the oldest and newest Kubernetes
	KUBE_VERSION=1.30.14 $(BIN)/pytest tests/cluster -m core $(ARGS)
	KUBE_VERSION=1.36.3 $(BIN)/pytest tests/cluster -m core $(ARGS)

bench: setup ## the budgets, as a table
	$(BIN)/python -m tests.bench $(ARGS)

cluster: setup ## a real cluster on this machine, left running to play with
	$(BIN)/python -m tests.cluster $(ARGS)

locks: setup ## what the images install, resolved anew with hashes
	$(BIN)/python manifests/images/locks.py

BUILDER   ?= $(firstword $(foreach tool,docker podman buildah,$(shell command -v $(tool))))
IMAGES    ?= localhost/gangshare
RUNTIME   ?= $(BASE)
PLATFORMS ?=
# Several platforms make a list of images: podman and buildah name it by --manifest, docker by --tag.
NAMED_BY   = $(if $(and $(PLATFORMS),$(filter-out docker,$(notdir $(BUILDER)))),--manifest,--tag)
REVISION   = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
CREATED    = $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo 1970-01-01T00:00:00Z)
images: sbom ## both images (BASE=image@sha256:…, RUNTIME=, IMAGES=registry/name, PLATFORMS=linux/amd64,linux/arm64, BUILDER=docker)
	@test -n "$(BUILDER)" || { echo "no builder of images: install docker, podman or buildah, or say BUILDER=…"; exit 1; }
	@for image in "$(BASE)" "$(RUNTIME)"; do \
	  case "$$image" in *@sha256:*) ;; *) echo "BASE or RUNTIME is '$$image': expected an image with Python 3.11+ by digest, like docker.io/library/python:3.12-slim@sha256:…"; exit 1;; esac; \
	done
	@for part in extender plugin; do \
	  $(BUILDER) build $(if $(PLATFORMS),--platform $(PLATFORMS)) --build-arg BASE=$(BASE) --build-arg RUNTIME=$(RUNTIME) \
	    --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) --build-arg CREATED=$(CREATED) \
	    --file Dockerfile.$$part $(NAMED_BY) $(IMAGES)/$$part:$(VERSION) $(BUILD_ARGS) . || exit 1; \
	done

sbom: setup ## what is in the images and the kubectl plugin (dist/*.cdx.json)
	$(BIN)/python -m release.contents

RELEASE_URL ?= https://example.com/gangshare/v$(VERSION)
release: setup ## dist/: wheel, sdist, chart, manifests, kubectl plugin, checksums (IMAGES=registry/name, RELEASE_URL=https://…)
	rm -rf dist
	$(BIN)/python -m release --images $(IMAGES) --url $(RELEASE_URL)

clean: ## what the targets above made in this folder
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist *.egg-info
