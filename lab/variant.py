# SPDX-License-Identifier: GPL-2.0-only
"""The driver variants that are compared."""

from __future__ import annotations

from enum import StrEnum


class Variant(StrEnum):
    STOCK = "stock"
    UPSTREAM = "upstream"
    NODROP = "nodrop"
    OLD = "old"
    """nodrop's modules of another commit."""


COMPARED = (Variant.STOCK, Variant.UPSTREAM, Variant.NODROP)
"""What is measured unless something else is asked for."""
OURS = (Variant.NODROP, Variant.OLD)
