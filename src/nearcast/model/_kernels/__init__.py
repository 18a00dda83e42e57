"""Kernels of `model`; importing them loads Numba."""
