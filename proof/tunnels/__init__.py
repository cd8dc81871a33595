# SPDX-License-Identifier: GPL-2.0-only
"""Tunnels of every kind over a device that drops all, or to another network namespace."""
