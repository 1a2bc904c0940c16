"""What a turn costs each scorer, and several together."""
