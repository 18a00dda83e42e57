"""Experiments: measurements against the papers' indexes, and the pages of docs/benchmarks."""
