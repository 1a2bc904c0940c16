"""`make streams`: very many live conversations at once."""
