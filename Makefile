# SPDX-License-Identifier: GPL-2.0-only
# Each target first installs or builds what it needs: packages, a virtual environment, a kernel.

PYTHON := .venv/bin/python
# The kernel of tests in guests: debug, kasan or kcsan-uml.
export LAB_TEST_FLAVOUR := $(or $(FLAVOUR),debug)

VPNS := $(or $(OUT),out/bench-vpns)

.PHONY: help bootstrap demo bench bench-full bench-vpns instructions test checks lint unit guest \
	sweep series man clean deb zipapp install uninstall

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24
	@scripts/checks.py help

bootstrap:
	@scripts/bootstrap

demo: bootstrap ## Compare nodrop, stock and upstream's flag: a table and a plot
	@.venv/bin/nodrop-lab demo

bench: bootstrap ## A short run of every kind of scenario, a quarter of an hour; OUT=DIR continues
	@.venv/bin/nodrop-lab bench --set short $(if $(OUT),--out "$(OUT)")

bench-full: bootstrap ## Most scenarios with at least ten pairs, about six hours; OUT=DIR continues
	@.venv/bin/nodrop-lab bench --set full $(if $(OUT),--out "$(OUT)")

bench-vpns: bootstrap ## Six VPNs, for 20 minutes; again: continues; OUT=DIR
	@scripts/bootstrap vpns
	@scripts/vpns
	@timeout --foreground --signal=INT 20m .venv/bin/nodrop-lab bench $(if \
		$(wildcard $(VPNS)/meta.json),--continue "$(VPNS)",vpns --out "$(VPNS)")

instructions: ## Instructions per packet on Debian's 7.3, as root, six minutes; OUT=DIR ONLY=WORDS
	@scripts/bootstrap kernels
	@.venv/bin/nodrop-lab bench instructions $(if $(OUT),--out "$(OUT)") $(if $(ONLY),--case "$(ONLY)")

test: ## All that a change must pass: linters, unit tests, a debug kernel; DEBIAN=1: Debian's, too
	@command -v python3 >/dev/null || scripts/bootstrap
	@exec scripts/checks.py gate $(if $(DEBIAN),--debian)

checks: ## The last results here of the named checks below, and whether they still hold
	@scripts/checks.py list

check-%:
	@command -v python3 >/dev/null || scripts/bootstrap
	@exec scripts/checks.py run $* $(PART)

lint: bootstrap ## Python, shell and kernel style; sparse
	@scripts/lint

unit: bootstrap ## Tests that need no kernel
	@$(PYTHON) -m pytest tests/unit tunnels/tests/test_unit.py

guest: bootstrap ## Tests inside a debug kernel; FLAVOUR=kasan or kcsan-uml for the others
	@$(PYTHON) -m pytest tests/guest

sweep: bootstrap ## All pairs of devices, readers, senders, events; packets accounted for; 5 minutes
	@$(PYTHON) -m pytest -n 2 -v tests/guest/test_sweep.py

series: ## Apply the patches for net-next to a kernel tree: TREE=DIR, SERIES=tunnels for tunnels
	@series/apply $(if $(TREE),"$(TREE)") $(if $(SERIES),"$(SERIES)")

man: bootstrap ## The man pages, into out/man
	@packaging/manpages out/man

deb: ## Debian packages into out/deb
	@packaging/deb

zipapp: ## The command in one file, out/nodrop.pyz, for hosts with Python 3.9 and no packages
	@packaging/lay zipapp out/nodrop.pyz

install: ## The DKMS modules and the command, with sudo; KVER=all or a version, SOURCE=its source
	@dkms/install $(if $(KVER),-k "$(KVER)") $(if $(SOURCE),-s "$(SOURCE)")

uninstall: ## Remove them, with sudo; the kernel's own modules are used again
	@dkms/install -u

clean: ## Remove all build products; the cache of kernels remains
	rm -rf .venv .venv.lock build out .mypy_cache .ruff_cache .pytest_cache nodrop.egg-info
