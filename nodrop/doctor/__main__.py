# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.doctor FILE``: record what doctor reads, for a test or a bug report."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from nodrop.doctor.observation import record

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m nodrop.doctor FILE")
    recorded = record(None, everywhere=True, seconds=1.0)
    Path(sys.argv[1]).write_text(json.dumps(asdict(recorded), indent=1) + "\n")
