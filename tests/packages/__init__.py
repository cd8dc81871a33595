# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the packages and of make install, in Debian roots."""
