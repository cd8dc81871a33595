# SPDX-License-Identifier: GPL-2.0-only
"""What runs inside a guest: sets up devices, generates traffic and counts it.

It needs only the standard library, ``ip``, ``tc``, ``ethtool``, ``nsenter`` and the programs of
``guestlib/traffic/``. It runs as root and has the guest to itself.
"""
