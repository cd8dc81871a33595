# SPDX-License-Identifier: GPL-2.0-only
"""Programs that try to break the modules: sweep, guest programs, models, mutants, fuzzer."""
