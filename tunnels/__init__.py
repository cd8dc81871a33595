# SPDX-License-Identifier: GPL-2.0-only
"""Patches for the kernel's tunnels, and what tests and measures them (README.md)."""
