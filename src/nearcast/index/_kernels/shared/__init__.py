"""Kernels and array layouts that several indexes share.

    projection         points of the plane or the globe in one frame, and upper bounds of nearness there
    grouped_postings   inverted lists of 32-lane rows with bounds per row, and the pool that holds them
    size_class         classes of blocks whose sizes are powers of two
    term_numbers       64-bit term ids to dense numbers
    term_order         terms by falling idf
    output             the arrays into which every `match_rows` writes, and its work counters

Import from the modules: `output` needs no Numba, the others do.
"""
