# SPDX-License-Identifier: GPL-2.0-only
"""Kernels for the lab: found, built and cached from the machine's own mirror."""

from nodrop.kernel.artifacts import ensure_artifacts
from nodrop.kernel.build import ensure_kernel
from nodrop.kernel.types import Artifacts, Kernel

__all__ = ["Artifacts", "Kernel", "ensure_artifacts", "ensure_kernel"]
