# SPDX-License-Identifier: GPL-2.0-only
# Everything sets itself up first: packages by name, a virtual environment, a kernel.

PYTHON := .venv/bin/python
# The kernel that tests in guests run on: debug, kasan, kcsan-uml or perf.
export NODROP_TEST_FLAVOUR := $(or $(FLAVOUR),debug)

.PHONY: help bootstrap demo bench bench-full instructions test checks lint unit guest sweep \
	man clean deb install uninstall

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24
	@scripts/check help

bootstrap:
	@scripts/bootstrap

demo: bootstrap ## Compare nodrop, stock and upstream's flag: one table, one picture
	@.venv/bin/nodrop-lab demo

bench: bootstrap ## Few pairs of a scenario of every kind, a quarter of an hour; OUT=DIR goes on
	@scripts/series short $(if $(OUT),"$(OUT)")

bench-full: bootstrap ## All scenarios with ten pairs and more, hours; OUT=DIR goes on with one
	@scripts/series full $(if $(OUT),"$(OUT)")

instructions: ## Instructions per packet, on Debian's 7.3 in QEMU, six minutes (as root); OUT=DIR ONLY=AXIS
	@scripts/bootstrap kernels
	@$(PYTHON) -m bench.instructions $(if $(OUT),--out "$(OUT)") $(if $(ONLY),--only "$(ONLY)")

test: ## All that a change has to pass: linters, unit tests, tests in a debug kernel; DEBIAN=1: and in Debian's
	@command -v python3 >/dev/null || scripts/bootstrap
	@exec python3 scripts/test $(if $(DEBIAN),--debian)

checks: ## What the named checks below have shown, and which of them to run again
	@scripts/check list

check-%:
	@command -v python3 >/dev/null || scripts/bootstrap
	@exec scripts/check run $* $(PART)

lint: bootstrap ## Python, shell and kernel style; sparse
	@scripts/lint

unit: bootstrap ## Tests that need no kernel
	@$(PYTHON) -m pytest tests/unit

guest: bootstrap ## Tests inside a debug kernel; FLAVOUR=kasan or kcsan-uml for the others
	@$(PYTHON) -m pytest tests/guest

sweep: bootstrap ## Devices, readers, senders and events in all pairs, all packets accounted for; five minutes
	@$(PYTHON) -m pytest -n 2 -v tests/guest/test_sweep.py

man: bootstrap ## The man pages, into out/man
	@packaging/manpages out/man

deb: ## Debian packages into out/deb
	@packaging/deb

install: ## DKMS modules and the command, by sudo; KVER=all or a version, SOURCE=its source
	@packaging/install $(if $(KVER),-k "$(KVER)") $(if $(SOURCE),-s "$(SOURCE)")

uninstall: ## Remove them by sudo; the kernel's own modules are used again
	@packaging/install -u

clean: ## Remove what was built here (the cache of kernels stays)
	rm -rf .venv .venv.lock build out .mypy_cache .ruff_cache .pytest_cache nodrop.egg-info
