# SPDX-License-Identifier: GPL-2.0-only
"""The variants that are compared: drivers, or what replaces them in a scenario."""

from __future__ import annotations

from enum import StrEnum


class Variant(StrEnum):
    STOCK = "stock"
    UPSTREAM = "upstream"
    NODROP = "nodrop"
    SERIES = "series"
    """The drivers with the patches of series/, opened with upstream's flag."""
    OLD = "old"
    """nodrop's modules of another commit."""


COMPARED = (Variant.STOCK, Variant.UPSTREAM, Variant.NODROP)
"""What is measured unless something else is asked for."""
KNOWN = (*COMPARED, Variant.SERIES)
"""The drivers that a guest loads by name."""
OURS = (Variant.NODROP, Variant.OLD)
