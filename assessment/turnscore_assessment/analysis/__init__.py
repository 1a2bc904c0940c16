"""Analyses of ratings files: study reports, replication, metrics against people, reliability and power."""
