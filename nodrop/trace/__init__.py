# SPDX-License-Identifier: GPL-2.0-only
"""Trace drops with the kernel's tracepoint skb:kfree_skb, and flow control with nodrop's own."""
