# SPDX-License-Identifier: GPL-2.0-only
"""What runs in a guest to measure: scenarios, and what they share."""
