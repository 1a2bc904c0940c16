"""Replicas: three services behind haproxy with one Redis; what callers see when one dies, restarts or slows."""
