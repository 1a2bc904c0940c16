"""The commands: what may be asked for, and nothing of how it is done."""
