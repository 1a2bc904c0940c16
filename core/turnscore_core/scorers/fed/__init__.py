"""FED: its questions, the tokens of its one pass, and the scores made of what the pass gives."""
