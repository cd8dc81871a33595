# SPDX-License-Identifier: GPL-2.0-only
"""nodrop: Linux TUN and TAP devices that hold packets back instead of dropping them."""
