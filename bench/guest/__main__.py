# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.guest``: make the plan's missing runs and append their results."""

from __future__ import annotations

import json
import sys

from bench.guest.plan import PLAN_NAME, read_plan
from bench.guest.runner import PROGRESS_MARK, run_all
from guestlib.environment import Environment
from guestlib.failure import GuestError


def main() -> int:
    """Run the plan; return 0 if all runs succeeded."""
    try:
        environment = Environment.from_environ()
        jobs = read_plan(environment.out / PLAN_NAME)

        def report(done: int) -> None:
            print(PROGRESS_MARK + json.dumps({"done": done, "of": len(jobs)}), flush=True)

        run_all(jobs, environment, report)
    except GuestError as error:
        print(f"bench.guest: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
