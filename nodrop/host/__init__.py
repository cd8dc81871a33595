# SPDX-License-Identifier: GPL-2.0-only
"""What this machine has: virtual links, who reads them, which driver they run on.

``read`` asks the kernel, ``raw`` is what it said (and what tests record), ``build`` makes the
``model`` of it that commands show.
"""
