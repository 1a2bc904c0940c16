"""FED: its language model, its graphs, and their parity with the published computation."""
