# SPDX-License-Identifier: GPL-2.0-only
"""Enumerations of words."""

from enum import Enum


class StrEnum(str, Enum):
    """Members are strings and print as such; Python's own StrEnum needs 3.11."""

    __str__ = str.__str__
