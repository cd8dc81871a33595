# SPDX-License-Identifier: GPL-2.0-only
"""Tries many combinations of devices, readers and senders with real packets: docs/testing.md."""
