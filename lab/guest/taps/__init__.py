# SPDX-License-Identifier: GPL-2.0-only
"""macvtap and ipvtap: their devices, the ways in which packets reach them, what is lost there."""
