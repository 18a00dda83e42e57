"""Kernels of `space`; importing them loads Numba."""
