"""The `turnscore corpus` command: options, progress and the closing summary. Scores nothing itself."""
