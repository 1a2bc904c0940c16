"""The `turnscore-corpus` command: options, progress and the words that a run ends with. Scores nothing itself."""
