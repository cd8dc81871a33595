# SPDX-License-Identifier: GPL-2.0-only
"""macvtap and ipvtap: their devices, the ingress paths to them, and the drops there."""
