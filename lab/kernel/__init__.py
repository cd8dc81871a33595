# SPDX-License-Identifier: GPL-2.0-only
"""Kernels for the lab, built from the source on this machine's Debian mirror and cached."""

from lab.kernel.artifacts import Artifacts, ensure_artifacts
from lab.kernel.kbuild import Kernel, ensure_kernel

__all__ = ["Artifacts", "Kernel", "ensure_artifacts", "ensure_kernel"]
