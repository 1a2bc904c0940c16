"""Data that several models are trained on. Reads and makes text; trains nothing."""
