"""Sentence encoders as they are published become bundles of kind encoder. Trains nothing."""
