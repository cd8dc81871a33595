# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of virtual links for Prometheus.

``metrics`` defines them, ``collect`` reads them from the model, ``text`` formats them in the text
exposition format, and ``file`` writes the file for node_exporter's textfile collector.
"""
