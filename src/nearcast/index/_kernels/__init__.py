"""Kernels of the indexes: one package per index, named after it, and `shared` for what several of them use."""
