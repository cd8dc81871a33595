# SPDX-License-Identifier: GPL-2.0-only
"""nodrop: Linux TUN and TAP devices that push back instead of dropping packets."""

import sys

# Every module of the command is imported after this one. Any Python can parse this file.
if sys.version_info < (3, 9):
    _nagios = "--nagios" in sys.argv
    (sys.stdout if _nagios else sys.stderr).write(
        ("NODROP UNKNOWN - " if _nagios else "")
        + "nodrop needs Python 3.9 or newer, and this is "
        + sys.version.split()[0]
        + ": install a newer one, such as python3.11, and run the command with it.\n"
    )
    sys.exit(3 if _nagios else 4)
