"""Kernels of `text`; importing them loads Numba."""
