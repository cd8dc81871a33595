# SPDX-License-Identifier: GPL-2.0-only
"""The exceptions of all guest code."""

from __future__ import annotations


class GuestError(Exception):
    """A run failed or its result cannot be trusted; the message is one sentence."""


class Unsupported(GuestError):
    """This kernel or machine lacks a feature; the message names it."""
