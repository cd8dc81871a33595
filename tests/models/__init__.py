# SPDX-License-Identifier: GPL-2.0-only
"""Proofs by exhaustion: of the memory ordering, and of a queue's life."""
