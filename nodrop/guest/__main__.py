# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest``: make the plan's missing runs, append to its raw data."""

from __future__ import annotations

import json
import sys

from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError
from nodrop.guest.plan import PLAN_NAME, read_plan
from nodrop.guest.runner import PROGRESS_MARK, run_all


def main() -> int:
    """Run the plan; 0 when all runs were made."""
    try:
        environment = Environment.from_environ()
        jobs = read_plan(environment.out / PLAN_NAME)

        def report(done: int) -> None:
            print(PROGRESS_MARK + json.dumps({"done": done, "of": len(jobs)}), flush=True)

        run_all(jobs, environment, report)
    except GuestError as error:
        print(f"nodrop.guest: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
