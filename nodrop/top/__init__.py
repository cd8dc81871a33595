# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop top``: current rates of packets and drops, and queueing delay.

``refresh`` reads the machine repeatedly, ``rates`` computes rates between two samples, and
``view`` selects and lays out what is shown.
"""
