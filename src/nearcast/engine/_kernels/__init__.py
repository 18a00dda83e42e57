"""Kernels of `engine`; importing them loads Numba."""
