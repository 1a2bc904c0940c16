"""Exports published sentence encoders as bundles of kind encoder. Trains nothing."""
