"""Commands: options and printing; `main` puts the sub-commands of `turnscore assess` together."""
