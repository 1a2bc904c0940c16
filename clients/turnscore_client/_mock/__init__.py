"""What testing.py is made of: answers, conversations and channels without a network."""
