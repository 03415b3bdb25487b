# make            what there is
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
OUT    ?= demo
JOBS   ?= 2
PORT   ?= 8000
TAG    ?=
DEMO_JOBS ?= $(shell $(PYTHON) -c 'import os; print(min(2, os.cpu_count() or 1))')

# Else every worker and every process of a test would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install test test-slow lint style format demo bench pictures results docs docs-serve release-check constraints clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

install: $(STAMP) ## build .venv with the package and all its extras
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[cli,data,log,report,cluster,hf,eval,docs,dev]'
	touch $(STAMP)

lint: style ## style, direction of imports, types
	$(BIN)/mypy

style: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

format: install ## put the code into the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Without a cache mypy reads all of torch for a minute: beside the tests, and its words after theirs.
test: style ## every check that takes seconds
	$(BIN)/mypy >$(VENV)/mypy.log 2>&1 & mypy=$$!; \
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m 'not slow'; tests=$$?; \
	wait $$mypy; types=$$?; cat $(VENV)/mypy.log; exit $$((tests | types))

test-slow: install ## the checks that take longer or need g++, LaTeX, chromium, zsh and fish
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m 'slow or drawn' --hypothesis-profile thorough

demo: install ## compare three rules on the embedded corpus: a report with plots, table and samples
	mkdir -p $(OUT)
	test -d $(OUT)/tales || $(BIN)/yurii prepare tales --tokenizer bpe:2048 --out $(OUT)/tales
	$(BIN)/yurii rules show nesterov-lie-trotter
	$(BIN)/yurii suite --data $(OUT)/tales --out $(OUT)/suite --preset tales-tiny --seeds 0,1,2 --jobs $(DEMO_JOBS) \
	  --rules gd-lie-trotter polyak-lie-trotter nesterov-lie-trotter --report

bench: install ## side-by-side measurements: the table of benchmarks/README.md (BENCH=--quick: small ones)
	$(BIN)/python -m benchmarks $(BENCH)

pictures: install ## the pictures of the README and the docs (needs chromium)
	$(BIN)/python docs/make_pictures.py

results: install ## the report pages of the archived studies, in results/pages
	$(BIN)/python -m results.make_reports

docs: install ## the documentation as a site, in site/ (the rule editor needs npm here)
	$(BIN)/python -m docs.site.build

docs-serve: docs ## the site on this machine
	@echo 'open http://127.0.0.1:$(PORT)'
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory site $(PORT)

release-check: install ## build wheel and sdist, check them, install and test them in fresh environments
	$(BIN)/python -m tests.release --tag '$(TAG)'

constraints: ## pin what a fresh install resolves to
	rm -rf .venv-pins && $(PYTHON) -m venv .venv-pins
	.venv-pins/bin/python -m pip install --quiet torch==2.13.0
	.venv-pins/bin/python -m pip install --quiet torch==2.13.0 -e '.[cli,data,log,report,cluster,hf,eval,docs,dev]'
	{ echo "# Every direct and transitive version; made by 'make constraints'."; \
	  .venv-pins/bin/python -m pip freeze --exclude-editable | sed -E 's/^(torch==[0-9.]+).*/\1/'; } > constraints.txt
	rm -rf .venv-pins

clean: ## remove what make made
	rm -rf $(VENV) .venv-pins $(OUT) results/pages build site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
