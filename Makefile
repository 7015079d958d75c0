# Two commands do everything on a fresh machine with Python (3.11 or newer) and make:
#   make demo   the main job on data that ships with a dependency; ends in a report to open
#   make test   what CI runs: lint, types, tests, documentation
# And for those who work on mooring:
#   make test-distributed  participants over NVIDIA FLARE, the analyst on Dask, object stores; the workflow runs it
#   make test-r   the R package of clients/r, which calls the command; needs R with jsonlite, processx, testthat, withr, knitr
#                 and markdown
#   make figures  docs/figures and the pages that go with them again, from the tables in results/; runs no study
#   make site     the documentation as pages in build/site, to open without a server; fails on a broken link
#   make fuzz     coverage-guided fuzzing of every reader of files, SECONDS=600; needs Linux
#   make dist     sdist and wheel, in dist/; the same commit gives the same bytes
#   make release-notes   the changelog's section of the current version; VERSION=0.2.0 for an earlier one
#   make kit      dist/kit: mooring and all it needs, hashed, for a machine without network; KIT='--platform win_amd64 ...'
#   make mutants  random mutants of the core against its tests, SEED=… COUNT=200 SECONDS=7200
#   make bench    speed and quality as ratios in one run, batches against one at a time among them; prints tables,
#                 writes benchmarks/results/*.json (make docs turns these into docs/benchmarks.md)

PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN_DISTRIBUTED := $(subst .venv,.venv-distributed,$(BIN))
# Python compiles what is imported; pip would compile everything.
# Files of other projects are pinned, and must have a hash of installation/hashes.txt.
INSTALL := $(BIN)/python installation/hashed.py

# What builds mooring's wheel in an environment of its own is pinned, too.
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt

# What Python compiles is kept, whatever the environment says: tests start more than a hundred processes.
export PYTHONDONTWRITEBYTECODE :=

PACKAGES := import sysconfig; place = sysconfig.get_path('purelib')

.PHONY: demo test test-distributed test-r lint types unit site fuzz mutants bench docs figures dist release-notes kit clean

demo: .venv/.demo
	rm -rf demo-report
	$(BIN)/mooring demo --output demo-report

test:  # imports, types and the documentation, one after the other, beside the tests
	$(MAKE) --jobs=2 .venv/.dev
	$(MAKE) lint
	$(MAKE) --jobs=2 types unit site

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

unit test-distributed: export OMP_NUM_THREADS := 1
unit test-distributed: export OPENBLAS_NUM_THREADS := 1
# A process a core, each with files of its own: what a file's tests share is made once. In the order of the folders the
# doctests come last; xdist's own order, by number of tests, leaves files with few long tests to the end. Each process would
# rewrite the assertions of all files, so that only the tests that failed run again with them, to show the values.
UNIT := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
unit: .venv/.dev
	$(UNIT) --assert=plain || { $(UNIT) --last-failed --last-failed-no-failures=none; exit 1; }

site: export NO_MKDOCS_2_WARNING := 1
site: .venv/.dev  # not --quiet, by which warnings would not fail it
	$(BIN)/mkdocs build --strict

test-distributed: .venv-distributed/.ready
	$(BIN_DISTRIBUTED)/python -m pytest tests/distributed

test-r: export MOORING := $(CURDIR)/$(BIN)/mooring
test-r: .venv/.demo  # the check needs neither LaTeX nor pandoc; the vignette is run, which fails on an error
	rm -rf build/r && mkdir -p build/r
	cd build/r && R CMD build --no-build-vignettes $(CURDIR)/clients/r
	cd build/r && R CMD check --no-manual --ignore-vignettes mooring_*.tar.gz
	cd build/r && R CMD INSTALL --library=. mooring_*.tar.gz && R_LIBS=. Rscript -e \
		'knitr::opts_chunk$$set(error = FALSE); knitr::knit("$(CURDIR)/clients/r/vignettes/four-hospitals.Rmd")'

fuzz: .venv/.fuzz
	$(BIN)/python -m tests.fuzz.run --seconds $(or $(SECONDS),600)

mutants: .venv/.dev
	$(BIN)/python -m tests.mutants --seed $(or $(SEED),1) --count $(or $(COUNT),200) --seconds $(or $(SECONDS),7200)

bench: .venv/.bench
	$(BIN)/python -m benchmarks.run

docs: .venv/.bench
	$(BIN)/python -m benchmarks.certified_share
	$(BIN)/python -m benchmarks.render
	$(BIN)/python -m benchmarks.render_leakage
	$(BIN)/python -m benchmarks.render_assurance
	$(BIN)/python -m benchmarks.render_statistics

figures: .venv/.dev
	$(BIN)/python -m mooring_studies.redraw results docs

dist: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct)
dist: .venv/.dist  # the same commit gives the same bytes: the wheel is built from the normalised source distribution
	rm -rf dist/mooring-*
	umask 022 && $(BIN)/python -m build --sdist --outdir dist .
	$(BIN)/python installation/normalise_sdist.py dist/*.tar.gz
	umask 022 && $(BIN)/python -m build --wheel --outdir dist dist/*.tar.gz

release-notes:
	@$(PYTHON) installation/release_notes.py $(or $(VERSION),$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/mooring/version.py))

kit: .venv/pyvenv.cfg
	$(BIN)/python installation/kit.py --output dist/kit $(KIT)

.venv/pyvenv.cfg: # the pip that comes with Python takes a third longer
	$(PYTHON) -m venv .venv
	$(INSTALL) pip

.venv/.demo: .venv/pyvenv.cfg pyproject.toml studies/pyproject.toml constraints.txt
	$(INSTALL) --editable .
	@touch $@

# Half of what .venv/.dev needs, for a second core to install beside the first half, .venv/.demo.
.venv/.tools: .venv/pyvenv.cfg constraints.txt
	$(INSTALL) --no-deps hypothesis import-linter grimp matplotlib mkdocs-material mpyc mypy networkx pillow ruff \
		pandas polars polars-runtime-32 scikit-image sympy torch
	@touch $@

.venv/.dev: .venv/.demo .venv/.tools
	$(INSTALL) --editable '.[dev]' --editable ./studies
	@touch $@

.venv/.dist: .venv/pyvenv.cfg constraints.txt
	$(INSTALL) build
	@touch $@

.venv/.fuzz: .venv/.dev
	$(INSTALL) --editable '.[dev,fuzz]'
	@touch $@

.venv/.bench: .venv/pyvenv.cfg pyproject.toml studies/pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev,bench]' --editable ./studies
	@touch $@ .venv/.dev .venv/.demo .venv/.tools

# On top of .venv, whose packages it finds through a .pth file: the extras are installed here, and nothing twice. pandas
# and torch, which these extras do not need, are hidden: every job of FLARE took five seconds to load them.
.venv-distributed/.ready: .venv/.dev
	$(BIN)/python -m venv --without-pip .venv-distributed
	$(BIN)/python -c "$(PACKAGES); print(f'import site; site.addsitedir({place!r})')" > \
		"$$($(BIN_DISTRIBUTED)/python -c "$(PACKAGES); print(place)")/mooring-base.pth"
	$(BIN_DISTRIBUTED)/python -c "$(PACKAGES); \
		[open(f'{place}/{name}.py', 'w').write('raise ModuleNotFoundError(__name__)\n') for name in ('pandas', 'torch')]"
	$(INSTALL) --python $(BIN_DISTRIBUTED)/python --editable '.[distributed]'
	@touch $@

clean:
	rm -rf .venv .venv-distributed demo-report build dist src/*.egg-info studies/*.egg-info
