"""Proof: whether one version of a bundle holds, found in a process of its own beside a service."""
