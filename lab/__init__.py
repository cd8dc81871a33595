# SPDX-License-Identifier: GPL-2.0-only
"""Finds, builds and boots kernels, and runs commands in guests."""
