"""Compiled loops of this package; loaded by whoever needs them, late."""
