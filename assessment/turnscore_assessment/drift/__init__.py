"""Drift: compares the scores of live turns with the bundle's curve and with a bot's earlier weeks."""
