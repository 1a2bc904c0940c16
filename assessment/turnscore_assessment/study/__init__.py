"""A running study: raters talk with systems or read recorded dialogues, and rate them, blind. Judges no ratings."""
