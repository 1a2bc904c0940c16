"""Queues, batches and the threads that compute them."""
