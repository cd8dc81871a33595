# SPDX-License-Identifier: GPL-2.0-only
"""Makes summary, table, plot and page of a run from its raw data; needs no kernel."""
