"""Metrics: how near a hypothesis is to a reference. One file a family; metric.py says what all of them are."""
