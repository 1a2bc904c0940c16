"""The command `turnscore`."""
