"""The papers' other systems, trained here to be compared with the shipped scorers."""
