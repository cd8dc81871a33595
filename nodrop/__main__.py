# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop``."""

import sys

from nodrop.cli import main

sys.exit(main())
