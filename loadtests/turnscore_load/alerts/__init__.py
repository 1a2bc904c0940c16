"""Alerts: a real Prometheus with the shipped rules beside real services; each alert's cause is made and taken away."""
