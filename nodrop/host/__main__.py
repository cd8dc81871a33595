# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.host FILE``: record this machine, for a test or a report of a fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nodrop.host.read import read

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m nodrop.host FILE")
    Path(sys.argv[1]).write_text(json.dumps(read(everywhere=True).to_json(), indent=1) + "\n")
