"""Metrics: how near a hypothesis is to a reference. One file per family; metric.py defines what all share."""
