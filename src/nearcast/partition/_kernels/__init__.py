"""Kernels of `partition`; importing them loads Numba."""
