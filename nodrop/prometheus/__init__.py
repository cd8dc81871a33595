# SPDX-License-Identifier: GPL-2.0-only
"""What a machine's virtual links counted, as Prometheus wants it.

``metrics`` says what there is, ``collect`` takes it from a machine, ``text`` writes it in the
text exposition format, ``file`` puts it where node_exporter's textfile collector looks.
"""
