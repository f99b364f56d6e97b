# Development commands. PYTHON may name another interpreter: make check PYTHON=.venv/bin/python
PYTHON ?= python
.PHONY: install check lint types test slow format benchmark

install:  ## install the package for development; torch first, so that nothing upgrades it
	$(PYTHON) -m pip install torch==2.13.0 -c constraints.txt
	$(PYTHON) -m pip install -e '.[dev,ray,flower]' -c constraints.txt

check: lint types test  ## everything that must pass before a commit

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -n auto --dist loadgroup -m "not slow"

slow:  ## the tests that take minutes: servers and nodes killed in mid-round
	$(PYTHON) -m pytest -m slow

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

benchmark:  ## speed against bare PyTorch; the result is committed
	$(PYTHON) benchmarks/step.py --json > benchmarks/results/step.json
	$(PYTHON) benchmarks/engine.py --json > benchmarks/results/engine.json
