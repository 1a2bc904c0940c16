"""Scoring: from a rating table to worker statistics, quality control, system scores, tests and intervals."""
