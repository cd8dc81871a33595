# SPDX-License-Identifier: GPL-2.0-only
"""What tries to break the modules: sweep, programs, litmus tests, Spin, mutants, fuzzer."""
