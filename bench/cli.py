# SPDX-License-Identifier: GPL-2.0-only
from lab.cli import PROGRAM as PROGRAM
from lab.cli import main as main
from lab.cli import run as run
