# SPDX-License-Identifier: GPL-2.0-only
"""The drivers that are compared."""

from __future__ import annotations

from enum import StrEnum


class Variant(StrEnum):
    """The drivers that are compared."""

    STOCK = "stock"
    UPSTREAM = "upstream"
    NODROP = "nodrop"
