# SPDX-License-Identifier: GPL-2.0-only
"""What is wrong with a machine's virtual links, and what to do about it.

``sample`` looks twice, ``look`` is what came of it, the checks (``ring``, ``queueing``,
``reader``, ``program``, ``driver``, ``kernels``) judge it, each under an id that
docs/guide.md explains, ``fixes`` writes the commands.
"""
