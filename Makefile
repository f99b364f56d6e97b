# Development commands. PYTHON may name another interpreter: make check PYTHON=.venv/bin/python
PYTHON ?= python
.PHONY: install check lint types test quick slow kills format cards golden papers benchmark precision scale peers

install:  ## install the package for development; torch first, so that nothing upgrades it
	$(PYTHON) -m pip install torch==2.13.0 -c constraints.txt
	$(PYTHON) -m pip install -e '.[dev,ray,flower,data,plots,tensorboard,vision,analysis,report,onnx,examples]' -c constraints.txt

check: lint types test  ## everything that must pass before a commit

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -n auto --dist loadgroup -m "not slow"

quick:  ## a promise of every kind and a call into every module, in two minutes; see tests/quick.py
	$(PYTHON) -m pytest -n 2 --dist loadgroup -m quick --used

slow:  ## the tests that take minutes: servers and nodes killed in mid-round
	$(PYTHON) -m pytest -m slow

kills:  ## runs ended by kill -9 at a hundred random moments, resumed and compared by hash
	$(PYTHON) -m pytest -m slow tests/experiment/test_kill.py -n 2

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

cards:  ## the pages of docs/methods, from the docstrings; a test holds them up to date
	$(PYTHON) -m undrift.compose.cards docs/methods

papers:  ## docs/papers.md, from the files of src/undrift/papers; a test holds it up to date
	$(PYTHON) -m undrift.papers.page docs/papers.md

golden:  ## the hashes of every method and of forty compositions, which guard refactoring
	$(PYTHON) tests/golden/hashes.py

precision:  ## four methods in float32 and bfloat16 over three seeds; an hour on one core, resumed where it was ended
	$(PYTHON) benchmarks/precision.py

benchmark:  ## speed against bare PyTorch; the result is committed
	$(PYTHON) benchmarks/step.py --json > benchmarks/results/step.json
	$(PYTHON) benchmarks/engine.py --json > benchmarks/results/engine.json
	$(PYTHON) benchmarks/smoke.py --json > benchmarks/results/smoke.json
	$(PYTHON) benchmarks/data.py --json > benchmarks/results/data.json
	$(PYTHON) benchmarks/plan.py --json > benchmarks/results/plan.json
	$(PYTHON) benchmarks/compiled.py --json > benchmarks/results/compiled.json

scale:  ## memory, seconds and traffic of a round with 1e8 parameters, which takes up to 8 GiB; the result is committed
	$(PYTHON) benchmarks/scale.py --json > benchmarks/results/scale.json

PEERS ?= $(HOME)/.cache/undrift-peers
peers:  ## the same work in other libraries, each in an environment of its own in PEERS; the result is committed
	$(PYTHON) benchmarks/peers/install.py $(PEERS)
	$(PYTHON) benchmarks/peers/peers.py $(PEERS) --json benchmarks/results/peers.json
