"""Kernels of `window`; importing them loads Numba."""
