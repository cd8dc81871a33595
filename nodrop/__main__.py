# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop``."""

import sys

from nodrop.start import main

sys.exit(main())
