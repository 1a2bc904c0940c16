"""Drift: whether the scores of live turns still fall as they did, against the bundle's curve and a bot's own weeks."""
