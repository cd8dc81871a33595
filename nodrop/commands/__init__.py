# SPDX-License-Identifier: GPL-2.0-only
"""The commands of ``nodrop``: one module each, with ``register`` and ``run``."""
