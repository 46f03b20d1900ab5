# `make` alone prints what can be made.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
LOG ?= sqlite
STAMP := .venv/.installed

help: ## print this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP) ## create .venv with the pinned packages

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

lock: ## pin the packages anew, with hashes
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes --no-emit-index-url \
	  --no-header --output-file requirements.lock pyproject.toml deploy/build-requirements.in

.PHONY: help setup lock
