# SPDX-License-Identifier: GPL-2.0-only
"""The machine: its virtual links, their owners and drivers.

``read.read()`` queries the kernel, ``read.Raw`` holds the answers (tests record them), and
``read.build()`` turns them into the ``model`` that commands show. ``owners.find()`` finds programs.
"""
