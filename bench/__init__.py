# SPDX-License-Identifier: GPL-2.0-only
"""The host's side of a benchmark: scenarios, order of runs, results."""
