"""The papers' bounds as plain functions: the reference with which the kernels must agree.

One module per kind. Every bound is safe: a score bound never underestimates, a prefix is never too short, a distance
bound never overestimates. Where a formula divides by `1 - delta` or by `alpha`, the functions here compare products
instead, so that 0 and 1 are legal.
"""
