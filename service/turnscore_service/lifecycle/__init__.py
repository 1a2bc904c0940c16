"""Starts, loads, switches, watches and ends the service's process."""
