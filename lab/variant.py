# SPDX-License-Identifier: GPL-2.0-only
"""The driver variants that are compared."""

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
"""What can be asked for by name."""
OURS = (Variant.NODROP, Variant.OLD)
