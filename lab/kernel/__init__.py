# SPDX-License-Identifier: GPL-2.0-only
"""Kernels for the lab: found, built and cached from the machine's own mirror."""

from lab.kernel.artifacts import Artifacts, ensure_artifacts
from lab.kernel.kbuild import Kernel, ensure_kernel

__all__ = ["Artifacts", "Kernel", "ensure_artifacts", "ensure_kernel"]
