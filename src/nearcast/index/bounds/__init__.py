"""Why may an index skip something? The papers' bounds as plain functions, the reference that kernels must agree with.

One module a kind. Every bound is safe: a score bound never underestimates, a prefix is never too short, a distance
bound never overestimates. Where a formula divides by `1 - delta` or by `alpha`, the functions here compare products
instead, so that 0 and 1 are legal.
"""
