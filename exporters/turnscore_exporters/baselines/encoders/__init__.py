"""Texts as vectors and as rows: word vectors, frozen encoders, checkpoints with a head. Knows no system."""
