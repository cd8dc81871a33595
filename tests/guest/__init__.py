# SPDX-License-Identifier: GPL-2.0-only
"""Tests that boot a User-Mode Linux kernel."""
