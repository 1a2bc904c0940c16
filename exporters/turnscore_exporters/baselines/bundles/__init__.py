"""Trained systems as bundles that the service loads: relevance and USR. Trains nothing."""
