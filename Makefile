# make up     everything, at http://127.0.0.1:8000 (make up PORT=8001 VITRINE_DATA=~/.vitrine-2 for a second one)
# make test   all tests of less than 4 s each, those in a real browser included; it installs Chromium if there is no browser
# make test-slow  the longer ones: models, axe-core on every page, the README's first five minutes, kills of processes, storms
# make test-quick  in less than 90 s: the rules, the SQL statements and one story of each family, without a browser
# make test-quarantine  the tests that fail at times, each marked with the reason; none is run again to pass
# make lint   ruff, types, import contracts, templates, migrations, and 130 columns for SQL, Markdown, CSS and JavaScript
# make bench  speed, as ratios against plain PostgreSQL (make bench ARGS="core fanout" for some of it, ARGS=--large for all sizes)
# make soak   clients, random kills and sweeps for 3 minutes, then 200 kills of the server under senders (make soak SECONDS=600),
#             each followed by a check of all invariants (python -m tests.soak.recomputation, or kills_of_jobs: of the analyses)
# make fuzz   hostile input for an hour, guided by coverage (make fuzz MINUTES=5 ARGS="--targets xml rule"); it installs atheris
#             where that exists, and is skipped with a sentence elsewhere
# make test-rabbitmq  runs the same scenarios and random scripts on a RabbitMQ server on loopback and on the core, and compares them
#             (make test-rabbitmq SECONDS=3600 SEED=7: scripts for an hour); as root it installs RabbitMQ from Debian if missing
# make test-clients   official clients, unmodified, on a listener: azure-storage-queue, azure-servicebus (administration), Celery,
#             curl, and both for JavaScript if there is npm; the port against the Python API (make test-clients SEED=7 SCRIPTS=200);
#             and the scenarios of queues, topics and rules, which the Service Bus administration API makes
#             (tests/service_bus/made_by.py)
# make test-azurite   the same for storage queues and Azurite, installed with npm if missing (make test-azurite SEED=7 SCRIPTS=200)
# make test-spark  every job of the analyses on a standalone Spark cluster, against local mode (as root: also in a network namespace)
# make clean  remove the virtual environment, not the data

PYTHON ?= python3
VENV := .venv
IN_VENV := $(VENV)/bin/python
TEMPLATES := templates $(wildcard explorer/*/templates)
PIP := $(IN_VENV) -m pip install --disable-pip-version-check -q

export PORT VITRINE_DATA

.PHONY: up test test-slow test-quick test-quarantine test-clients test-rabbitmq test-azurite test-spark lint bench soak fuzz mutants clean
.DELETE_ON_ERROR:

up: $(VENV)/base.stamp $(VENV)/spark.tried
	@exec $(IN_VENV) manage.py up

PYTEST = $(IN_VENV) -m pytest -n 2 --dist loadfile --no-loadscope-reorder
stop_databases = for data in "$$VITRINE_DATA" "$$VITRINE_DATA"/gw*; do VITRINE_DATA=$$data $(IN_VENV) manage.py embedded_postgres stop 2>/dev/null; done
TESTS := test test-slow test-quarantine test-quick
RULES := tests/common tests/service_bus/rules tests/rabbitmq/rules tests/queue_storage/test_rules.py tests/test_rules.py

test: WHICH := not slow and not quarantine
test-slow: WHICH := slow and not quarantine
test-quarantine: WHICH := quarantine
test-quick: WHICH := not slow and not quarantine
test-quick: PATHS := $(RULES) tests/store tests/test_stories.py
test-quarantine: NONE_IS_FINE := [ $$code -ne 5 ] || code=0;
# In Python 3.11, a thread that formats a traceback can make ast.parse fail in another one (python/cpython#106905): the carets
# below a line are found by ast.parse. Without column positions there are no carets.
$(TESTS): export PYTHONNODEBUGRANGES := 1
$(TESTS): export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/test)
test test-slow test-quarantine: $(VENV)/spark.tried
$(TESTS): $(VENV)/dev.stamp
	@[ $@ = test-quick ] || $(IN_VENV) -m tests.browser
	@$(PYTEST) -m "$(WHICH)" $(PATHS) $(ARGS); code=$$?; $(NONE_IS_FINE) $(stop_databases); exit $$code

# Not part of `test`: it needs a RabbitMQ server and waits for it.
test-rabbitmq: export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/test)
test-rabbitmq: export VITRINE_DIFFERENTIAL := yes
test-rabbitmq: $(VENV)/dev.stamp
	@$(IN_VENV) -m tests.differential.server
	@$(IN_VENV) -m pytest tests/differential -q $(ARGS); code=$$?; $(IN_VENV) manage.py embedded_postgres stop 2>/dev/null; exit $$code

# Not part of `test`: it has the same stories for each client, and takes some minutes. SCENARIOS: of entities and rules.
test-clients: SCENARIOS = $(shell grep -l "^from .made_by import" tests/service_bus/test_*.py) tests/service_bus/administration/test_as_the_core.py
test-clients: export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/test)
test-clients: export VITRINE_CLIENTS := yes
test-clients: $(VENV)/dev.stamp
	@$(IN_VENV) -m tests.official_clients.node.installed
	@$(PYTEST) tests/official_clients $(SCENARIOS) -q $(ARGS); code=$$?; $(stop_databases); exit $$code

test-azurite: export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/test)
test-azurite: export VITRINE_DIFFERENTIAL := yes
test-azurite: $(VENV)/dev.stamp
	@$(IN_VENV) -m tests.azurite.server
	@$(IN_VENV) -m pytest tests/azurite -q $(ARGS); code=$$?; $(IN_VENV) manage.py embedded_postgres stop 2>/dev/null; exit $$code

# Not part of `test`: it starts a cluster, and takes some minutes.
test-spark: export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/test)
test-spark: export VITRINE_SPARK_CLUSTER := yes
test-spark: $(VENV)/dev.stamp $(VENV)/spark.tried
	@$(IN_VENV) -m pytest tests/analysis/test_cluster.py -q $(ARGS); code=$$?; $(IN_VENV) manage.py embedded_postgres stop 2>/dev/null; exit $$code

lint: $(VENV)/dev.stamp
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/djlint --lint --quiet $(TEMPLATES)
	$(VENV)/bin/djangofmt --check $(TEMPLATES)
	@find $(TEMPLATES) -name '*.html' -exec awk 'length > 130 {print FILENAME ":" FNR ": longer than 130 columns"; bad = 1} END {exit bad}' {} +
	$(IN_VENV) -m tests.line_lengths
	DATABASE_URL=postgres://nobody@127.0.0.1:9/none $(IN_VENV) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

bench: export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/bench)
bench: $(VENV)/dev.stamp
	@exec $(IN_VENV) -m bench $(ARGS)

soak: export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/soak)
soak: $(VENV)/dev.stamp
	@exec $(IN_VENV) -m tests.soak --seconds $(or $(SECONDS),180) $(ARGS)

# Not part of `test`. What it finds is kept in tests/fuzz/cases, and replayed by `test`.
fuzz: export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/fuzz)
fuzz: $(VENV)/dev.stamp
	@$(PIP) atheris==3.0.0 2>/dev/null || true
	@exec $(IN_VENV) -m tests.fuzz --minutes $(or $(MINUTES),60) $(ARGS)

# Not part of `test`: deliberate faults, one at a time, which the tests must detect.
mutants: export VITRINE_DATA := $(or $(VITRINE_DATA),$(CURDIR)/.vitrine/test)
mutants: $(VENV)/dev.stamp
	@$(IN_VENV) -m tests.mutants $(ARGS); code=$$?; $(IN_VENV) manage.py embedded_postgres stop 2>/dev/null; exit $$code

clean:
	rm -rf $(VENV)

# A stamp is newer than the requirements file that was installed.

$(IN_VENV):
	@command -v $(PYTHON) >/dev/null || { echo "Vitrine needs Python 3.11 or newer, and there is no $(PYTHON) here. Install one, or name it: make up PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Vitrine needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name a newer one: make up PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment. On Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/base.stamp: requirements.txt | $(IN_VENV)
	@echo "Installing Vitrine into $(VENV), once: it downloads about 150 MB now, then about 520 MB for Spark and its Java."
	@$(PIP) -r requirements.txt || { echo "The download failed (see above). Nothing is broken: check the network, then run make again." >&2; exit 1; }
	@touch $@

# A failed Spark download is reported and retried at the next start. pip -q shows no progress, so the size is printed first.
$(VENV)/spark.tried: requirements-spark.txt $(VENV)/base.stamp
	@echo "Installing Spark and its Java for the analyses, once: 520 MB, some minutes on a slow line."
	@if $(PIP) -r requirements-spark.txt; then touch $@; else \
	  echo "Spark could not be installed (see above). Analyses will not run; everything else works. The next make up tries again." >&2; fi

$(VENV)/dev.stamp: requirements-dev.txt $(VENV)/base.stamp
	@echo "Installing what the tests need, once: about 135 MB."
	@$(PIP) -r requirements-dev.txt
	@touch $@
