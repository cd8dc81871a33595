# SPDX-License-Identifier: GPL-2.0-only
"""The machine: its virtual links, their owners and drivers.

``read`` queries the kernel, ``raw`` holds the answers (tests record them), and ``build`` turns
them into the ``model`` that commands show.
"""
