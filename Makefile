# Two commands do everything: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
# One math thread a test process: two processes share the machine.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test check bench docs clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/credibly demo

# Style, types, room boundaries, laws, doctests, README: the developer's check and CI's.
test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m benchmarks

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv dist site .pytest_cache .ruff_cache
