"""Replication: whether two studies of the same systems say the same, and how few workers would have said it."""
