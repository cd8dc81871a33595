# SPDX-License-Identifier: GPL-2.0-only
"""Checks of a machine's virtual links, and commands that fix what they find.

``observation`` reads the machine twice. The checks (``machine``, ``device``) have ids that
docs/guide.md explains, and end in ``findings``. ``fixes`` has the commands.
"""
