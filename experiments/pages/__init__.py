"""The generator: pages and plots of docs/benchmarks, and the figures of the README, from the data files.

    python -m experiments.pages

Nothing here measures. Sentences that compare with a paper are computed from the numbers.
"""
