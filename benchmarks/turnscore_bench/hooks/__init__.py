"""What hooks add to a chatbot's replies: behind its back, and with a gate."""
