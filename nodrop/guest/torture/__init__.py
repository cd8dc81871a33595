# SPDX-License-Identifier: GPL-2.0-only
"""Punishes TUN and TAP devices at random and accounts for every packet: docs/torture.md."""
