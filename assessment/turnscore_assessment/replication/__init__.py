"""Replication: whether two studies of the same systems agree, and how few workers would have sufficed."""
