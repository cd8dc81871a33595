# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the tunnel series: what tunnels of each kind send, and their cost in cycles."""
