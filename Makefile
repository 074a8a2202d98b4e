# Two commands do everything: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
# One math thread per test process: two processes share the machine.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test check browser test-spark test-extras test-oldest determinism lock audit test-vision test-text test-frameworks examples chaos bench golden mutants claims long-runs docs outputs clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	OMP_NUM_THREADS=2 $(BIN)/credibly demo

# Style, types, layers, tests, doctests, README code, browser: the developer's check and CI's.
test: check browser
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

browser: setup
	$(BIN)/python tests/app/provide_browser.py

# Past one machine, on a standalone cluster on loopback that the tests start (a master and two
# workers, one of which they kill): needs Java and a large package, so it stands beside `make test`.
test-spark: setup
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev,spark]'
	command -v java || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq default-jre-headless; }
	CREDIBLY_SPARK=1 $(BIN)/python -m pytest tests/spark
	CREDIBLY_SPARK=1 $(BIN)/python -m pytest tests/retrieve/test_retrieve_spark.py

# One fresh environment for plain credibly and for each extra: what runs, and what names the extra.
test-extras:
	for extra in none train plot search serve all; do \
		rm -rf .venv-extra && $(PYTHON) -m venv .venv-extra && \
		.venv-extra/bin/pip install --quiet -c constraints.txt torch && \
		.venv-extra/bin/pip install --quiet -c constraints.txt ".[$$extra]" && \
		du -sm .venv-extra | cut -f1 && .venv-extra/bin/python -W ignore tests/packaging/extras.py $$extra \
		|| exit 1; done; rm -rf .venv-extra

# The oldest versions that pyproject.toml allows, torch apart.
test-oldest:
	rm -rf .venv-oldest && $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet -c constraints.txt torch
	.venv-oldest/bin/python tests/packaging/extras.py --oldest > .venv-oldest/oldest.txt
	.venv-oldest/bin/pip install --quiet -c constraints.txt -c .venv-oldest/oldest.txt '.[all]'
	.venv-oldest/bin/python -W ignore tests/packaging/extras.py all

# requirements.lock with hashes, and sbom.json, from what the package index has today.
lock: setup
	$(BIN)/python tests/packaging/lock.py

# Known weaknesses of what is locked; it asks a service, so it needs a network.
audit: setup
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --disable-pip --no-deps -r requirements.lock || { echo 'A weakness is listed above; or the service was not reached, and nothing was audited.'; exit 1; }

# timm and transformers networks: an environment of their own, see docs/guide/training.md.
test-vision:
	test -x .venv-vision/bin/python || $(PYTHON) -m venv .venv-vision
	.venv-vision/bin/pip install --quiet -c constraints.txt torch
	.venv-vision/bin/pip install --quiet -c constraints.txt -e '.[all]' pytest huggingface_hub pyyaml transformers
	.venv-vision/bin/pip install --quiet --no-deps timm torchvision==0.28.0
	.venv-vision/bin/python -m pytest tests/vision

# Text encoders and LXMERT of transformers: an environment of their own, as for the networks above.
test-text:
	test -x .venv-text/bin/python || $(PYTHON) -m venv .venv-text
	.venv-text/bin/pip install --quiet -c constraints.txt torch
	.venv-text/bin/pip install --quiet -c constraints.txt -e '.[all,text]' pytest
	PYTHONPATH=tests/data .venv-text/bin/python -m pytest tests/text tests/data/test_data_vqa.py

# Trainer, Lightning, timm, XGBoost, notebooks: an environment of their own. Other libraries try to use
# torchvision, which breaks on this torch, so it lies in a folder that only the timm example sees.
FRAMEWORKS := .venv-frameworks/bin
.venv-frameworks/.ready: pyproject.toml constraints.txt
	test -x $(FRAMEWORKS)/python || $(PYTHON) -m venv .venv-frameworks
	$(FRAMEWORKS)/pip install --quiet -c constraints.txt torch
	$(FRAMEWORKS)/pip install --quiet -c constraints.txt -e '.[all]' pytest pandas pyyaml huggingface_hub \
		transformers lightning xgboost-cpu lightgbm cleanlab nbclient ipykernel
	$(FRAMEWORKS)/pip install --quiet --no-deps --upgrade --target .venv-frameworks/vision timm torchvision==0.28.0
	touch $@

test-frameworks: .venv-frameworks/.ready
	$(FRAMEWORKS)/python -m pytest tests/frameworks tests/users

# Every script of examples/, in folders of their own; ARGS=with_timm.py: one of them.
examples: .venv-frameworks/.ready
	$(FRAMEWORKS)/python examples/run_all.py $(ARGS)

# Kills, failing disks, power loss, then hostile files and attacks on the server; counts go to
# chaos.json, and a second call goes on from there. The short form is part of `make test`.
MINUTES ?= 60
chaos: setup
	$(BIN)/python tests/faults/chaos.py --minutes $(MINUTES) --record chaos.json

# Every model and loss: the same bytes again, in another folder and locale, with 1, 2 and 4 threads,
# with a cold cache. The short form is part of `make test`.
determinism: setup
	CREDIBLY_DETERMINISM=all $(BIN)/python -m pytest tests/reproducibility

# `make bench`: all of them; `python -m benchmarks scale`: one table.
bench: setup
	$(BIN)/python -m benchmarks

# What 40 commands and calls and the checks of nine losses give, against benchmarks/golden/record.json.
# ARGS='--accept KEY --why REASON': a change that is wanted; ARGS='--only joint': one data set.
golden: setup
	$(BIN)/python -W ignore -m benchmarks.golden $(ARGS)

# Small random changes of the code that the tests must notice: the share per package, and survivors.
# ARGS='--package metrics --sample 10 --seed 1'; ARGS='--package decide --at recall.py:156': one line.
mutants: setup
	$(BIN)/python -m benchmarks.mutants $(ARGS)

# Every claim of the papers on real data: hours; what was run before is kept. ARGS=--quick: minutes.
# NETWORKS=1: the claims on networks trained on images, which need the folder CREDIBLY_ASSETS.
claims: setup
	$(BIN)/python -W ignore -m benchmarks.claims $(if $(NETWORKS),--networks) $(ARGS)

# Runs of hours (benchmarks/long_runs.toml), at the commit that the plan names, on one core. Stop it at
# any time; the same command goes on. LIMIT=3: three units. ARGS=--list: what is done and left.
long-runs:
	$(PYTHON) -m benchmarks.long_runs $(if $(LIMIT),--limit $(LIMIT)) $(ARGS)

docs: setup
	$(BIN)/mkdocs build --strict

# What the blocks of README, Start and tutorials print, and the README's figure from its record.
outputs: setup
	CREDIBLY_OUTPUTS=write $(BIN)/python -m pytest -q tests/documentation/test_blocks.py -k "README or start or tutorials"
	$(BIN)/python -m benchmarks.studies.headline

clean:
	rm -rf .venv dist site .pytest_cache .ruff_cache
