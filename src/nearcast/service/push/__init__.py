"""Delivery of updates and messages to clients, as they are committed."""
