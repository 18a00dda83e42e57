"""Kernels of `social`; importing them loads Numba."""
