# SPDX-License-Identifier: GPL-2.0-only
"""What runs inside the guest: it sets up devices, makes traffic and counts it.

Needs only the standard library, ``ip``, ``tc``, ``ethtool``, ``nsenter`` and the
programs of ``lab/traffic/``. Runs as root, in a kernel that nobody else uses.
"""
