# SPDX-License-Identifier: GPL-2.0-only
# Everything sets itself up first: packages by name, a virtual environment, a kernel.

PYTHON := .venv/bin/python
# The kernel that tests in guests run on: debug, kasan or perf.
export NODROP_TEST_FLAVOUR := $(or $(FLAVOUR),debug)

.PHONY: help bootstrap demo test test-kernels lint unit guest mutants clean \
	deb install uninstall

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

bootstrap:
	@scripts/bootstrap

demo: bootstrap ## Compare nodrop, stock and upstream's flag: one table, one picture
	@.venv/bin/nodrop demo

test: bootstrap lint ## Linters, unit tests, tests inside a debug kernel
	@$(PYTHON) -m pytest

lint: bootstrap ## Python, shell and kernel style; sparse
	@scripts/lint

unit: bootstrap ## Tests that need no kernel
	@$(PYTHON) -m pytest tests/unit

guest: bootstrap ## Tests inside a debug kernel; FLAVOUR=kasan for the other one
	@$(PYTHON) -m pytest tests/guest

test-kernels: ## nodrop's packages on Debian's own kernels, in QEMU (as root)
	@scripts/bootstrap kernels
	@$(PYTHON) -m nodrop.lab.machine $(NODROP_TEST_KERNELS)
	@$(PYTHON) -m pytest -n 2 tests/kernels tests/packages

mutants: bootstrap ## Break the kernel code on purpose: which tests notice?
	@$(PYTHON) tests/mutants.py

deb: ## Debian packages into out/deb
	@scripts/deb

install: ## DKMS modules and the command, by sudo; KVER=all or a version, SOURCE=its source
	@scripts/install $(if $(KVER),-k "$(KVER)") $(if $(SOURCE),-s "$(SOURCE)")

uninstall: ## Remove them by sudo; the kernel's own modules are used again
	@scripts/install -u

clean: ## Remove what was built here (the cache of kernels stays)
	rm -rf .venv .venv.lock build out .mypy_cache .ruff_cache .pytest_cache nodrop.egg-info
