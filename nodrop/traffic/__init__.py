# SPDX-License-Identifier: GPL-2.0-only
"""Traffic through one device to an address where nothing of nodrop runs: echo requests, a load."""
