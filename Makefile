# Every target first sets up what it needs: a virtual environment in .venv with the versions of requirements-dev.lock.

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
# Twice quiet: errors only.
PIP := -m pip --quiet --quiet --disable-pip-version-check
SITE := NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
SHELL_REFERENCE := .venv/bin/typer ripml.cli.app utils docs --name ripml
ARCHITECTURE := .venv/bin/python docs/_site/architecture.py

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types pages docs pictures site browser bench format lock vendor sbom audit fuzz
# Tests start hundreds of processes, and each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

demo: .venv/.installed ## train a small model and show its suggestions
	@.venv/bin/ripml demo

# Two workers on two cores: threads of BLAS in the processes that tests start would wait for each other.
test: export OPENBLAS_NUM_THREADS := 1
test: .venv/.installed ## run all tests, including the examples in docstrings and pages
	@.venv/bin/pytest -n 2 --dist worksteal

check: lint types pages ## check format, lint, types, import layers, and what the pages take from the code

lint: .venv/.installed
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/lint-imports

types: .venv/.installed
	@.venv/bin/mypy

pages: .venv/.installed
	@$(SHELL_REFERENCE) | diff docs/shell.md - || (echo "docs/shell.md is out of date: make docs"; exit 1)
	@$(ARCHITECTURE) | diff -q docs/architecture.svg - >/dev/null || (echo "docs/architecture.svg is out of date: make docs"; exit 1)
	@$(SITE)

site: .venv/.installed ## build the documentation into site/
	@$(SITE)

docs: .venv/.installed ## regenerate the pages and pictures that come from the code
	@$(SHELL_REFERENCE) > docs/shell.md
	@$(ARCHITECTURE) > docs/architecture.svg

pictures: .venv/.installed ## make the pictures and the film of the page in docs/page/ with Chromium
	@.venv/bin/python docs/_site/pictures.py docs/page
	@.venv/bin/python docs/_site/film.py docs/page/film.webp

# Without Chromium the tests of the page are skipped; under CI they fail.
browser: ## install Debian's Chromium for the tests of the page
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium)

# Benchmarks that take hours run with --quick here and write nothing, so that the figures of the last full run stay.
LONG := benchmarks/rivals.py benchmarks/losses.py benchmarks/missing_labels.py benchmarks/kernels.py \
	benchmarks/wikipedia_scale.py benchmarks/growth.py benchmarks/streaming.py benchmarks/dask_scale.py \
	benchmarks/indexes.py benchmarks/wide.py benchmarks/updates.py benchmarks/crashes.py benchmarks/serving.py \
	benchmarks/light_server.py benchmarks/server_faults.py benchmarks/decisions.py benchmarks/packages.py \
	benchmarks/answers.py benchmarks/backup.py benchmarks/hostile.py benchmarks/large_store.py benchmarks/million.py \
	benchmarks/eurlex57k.py benchmarks/review.py benchmarks/label_audit.py benchmarks/tag_jobs.py benchmarks/guarantees.py \
	benchmarks/page.py benchmarks/learning_curve.py benchmarks/completion.py benchmarks/map.py \
	benchmarks/page_search.py

bench: .venv/.installed ## run every benchmark (long ones with --quick); figures go to benchmarks/results/
	@mkdir -p benchmarks/results
	@set -e; for f in $(filter-out benchmarks/harness.py benchmarks/reproduction_page.py $(LONG), $(wildcard benchmarks/*.py)); do \
		echo "== $$f"; .venv/bin/python "$$f" --json "benchmarks/results/$$(basename "$$f" .py).json"; \
	done
	@set -e; for f in $(LONG); do echo "== $$f --quick"; .venv/bin/python "$$f" --quick; done

format: .venv/.installed ## format the code and fix what the linter can fix
	@.venv/bin/ruff check --fix-only .
	@.venv/bin/ruff format .

# Only the versions in the lock file are fetched. The build backend is one of them, hence no build isolation. Modules are
# compiled when they are first imported, which most of them never are.
.venv/.installed: pyproject.toml requirements-dev.lock
	@echo "Setting up .venv"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python $(PIP) install --no-compile --require-hashes -r requirements-dev.lock
	@.venv/bin/python $(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# The newest compatible versions, each with the hashes of all its files: what is installed is what was locked, on any
# platform. deploy/requirements.lock is the part that a server needs, deploy/build.lock what builds the wheel: for the
# container.
LOCK := pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-package ripml

lock: ## resolve the newest versions into requirements-dev.lock and deploy/requirements.lock
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder"; \
	"$$folder/bin/python" $(PIP) install uv; \
	"$$folder/bin/uv" $(LOCK) --upgrade --all-extras requirements-dev.in pyproject.toml -o requirements-dev.lock; \
	"$$folder/bin/uv" $(LOCK) --upgrade --extra fast --extra files --extra index --extra parquet --extra serve --extra skos --extra text --extra words pyproject.toml \
		--constraint requirements-dev.lock -o deploy/requirements.lock; \
	printf 'build\nhatchling\n' | "$$folder/bin/uv" $(LOCK) --upgrade - --constraint requirements-dev.lock -o deploy/build.lock

# The charts of the page: the version and the hash of the archive are in vendor.json, beside the files.
vendor: .venv/.installed ## fetch the pinned JavaScript of the page by npm, and check it
	@.venv/bin/python deploy/vendor.py

# The packages of ripml and its extras, with versions, licences and hashes, as CycloneDX 1.6.
sbom: .venv/.installed ## write the software bill of materials to dist/ripml.cdx.json
	@mkdir -p dist
	@.venv/bin/python deploy/sbom.py dist/ripml.cdx.json

# Needs the network: exit code 0 if no vulnerability is known, 1 if one is, 2 if no database could be asked.
audit: .venv/.installed ## look up known vulnerabilities of all locked packages
	@.venv/bin/python deploy/audit.py requirements-dev.lock

# RIPML_FUZZ is the number of cases for each parser; `make test` runs a few with a fixed seed.
fuzz: .venv/.installed ## feed every parser and the model folder with random input, for minutes
	@RIPML_FUZZ=$${RIPML_FUZZ:-5000} .venv/bin/pytest tests/test_fuzz.py -n 2
