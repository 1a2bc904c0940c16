"""How a trained system goes with people, and what it says of wrong responses. Trains nothing."""
