"""Nearcast: standing subscriptions over a stream of places and words, answered exactly at every moment."""
