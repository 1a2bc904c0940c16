"""Hostile callers, bounded and on loopback only: what they do to the service and to those beside them."""
