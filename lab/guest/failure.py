# SPDX-License-Identifier: GPL-2.0-only
"""The error of everything in the guest."""

from __future__ import annotations


class GuestError(Exception):
    """A run cannot be made or its result cannot be trusted; one sentence says why."""


class Unsupported(GuestError):
    """This kernel or machine cannot do it; one sentence says what it lacks."""
