# SPDX-License-Identifier: GPL-2.0-only
"""Checks of a machine's virtual links, and commands that fix what they find.

``sample`` reads the machine twice; ``look`` holds both samples. The checks (``ring``,
``queueing``, ``delay``, ``reader``, ``usage``, ``driver``, ``kernels``) have ids that docs/guide.md
explains. ``fixes`` has the commands.
"""
