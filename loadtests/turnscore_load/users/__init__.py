"""Locust's users: who asks, how often and through which API; and the budgets that a run must keep."""
