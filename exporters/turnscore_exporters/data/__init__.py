"""Data that several models are trained on. Reads and generates text; trains nothing."""
