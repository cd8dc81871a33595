# SPDX-License-Identifier: GPL-2.0-only
"""From a run's raw data to its summary, its table and its picture; needs no kernel."""
