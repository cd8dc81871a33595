# SPDX-License-Identifier: GPL-2.0-only
"""nodrop: Linux TUN and TAP devices that push back instead of dropping packets."""
