# SPDX-License-Identifier: GPL-2.0-only
"""Where packets are lost: the kernel's tracepoint skb:kfree_skb, counted inside the kernel."""
