"""The papers' other systems, to be trained here and set beside the shipped scorers. Serves nothing."""
