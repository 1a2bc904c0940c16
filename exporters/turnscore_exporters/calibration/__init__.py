"""Calibrates a bundle on turns that a deployment's own people rated. Imports no torch."""
