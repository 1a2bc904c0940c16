"""Texts to vectors and rows: word vectors, frozen encoders, checkpoints with a head. Knows no system."""
