# SPDX-License-Identifier: GPL-2.0-only
"""Tunnels that send while everything that their packets depend on changes."""
