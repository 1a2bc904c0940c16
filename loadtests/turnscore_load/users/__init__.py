"""Locust's users: who asks, how often and through which door; and the budgets that a run must keep."""
