"""The doctor: what this machine has, what would run here and where, and what is wrong."""
