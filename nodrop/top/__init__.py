# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop top``: what passes now, what waits and what is lost.

``look`` reads the machine again and again, ``rates`` makes numbers per second of two looks,
``view`` chooses and lays out what is shown.
"""
