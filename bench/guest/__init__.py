# SPDX-License-Identifier: GPL-2.0-only
"""The guest's side of benchmarks: scenarios, and what they share."""
