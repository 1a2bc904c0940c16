"""Bundles: one version of one scorer with its checksums; read, checked, stored and found by name and version."""
