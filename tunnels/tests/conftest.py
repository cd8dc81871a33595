# SPDX-License-Identifier: GPL-2.0-only
"""The time limits of all tests."""

from conftest import pytest_configure, pytest_runtest_protocol, pytest_runtest_setup

__all__ = ["pytest_configure", "pytest_runtest_protocol", "pytest_runtest_setup"]
