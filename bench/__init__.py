# SPDX-License-Identifier: GPL-2.0-only
"""The host's side of a benchmark: what to run, in which order, and where it goes."""
