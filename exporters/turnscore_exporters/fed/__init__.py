"""FED: its language model, the graphs made of it, and their parity with the published way."""
