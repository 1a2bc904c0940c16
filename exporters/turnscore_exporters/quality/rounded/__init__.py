"""The quality model learns to answer after int8 rounding as it did before."""
