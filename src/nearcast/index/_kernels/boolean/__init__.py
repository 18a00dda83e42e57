"""Kernels of `nearcast.index.boolean`; that module explains the arrays and the design.

    quantize ──> a coordinate as 43 bits, in order      lists_of_box ──> the lists that a box belongs to
    pack_lanes ──> a point or a box as 4 x 15 bits      insert_branches, delete_slots, match_rows ──> batches

A box is compared with a point in one subtraction of four lanes of 14 bits, each with a guard bit above it. The point
sets the guards, the box is subtracted, and a guard survives where the point's lane is not below that of the box:

    lane            0       1               2       3
    point           x       16383 - x       y       16383 - y           + guards
    box             xmin    16383 - xmax    ymin    16383 - ymax

Coordinates in the lanes are those within the list's cell in 8192 steps, plus 1; 0 and 8193 mean "beyond the cell".
Rounding to steps keeps the order, so unequal steps decide; where they are equal, the box itself decides.
"""

from nearcast.index._kernels.boolean.change import (
    count_terms,
    delete_slots,
    export_terms,
    insert_branches,
    order_branches,
)
from nearcast.index._kernels.boolean.layout import (
    CLASSES,
    DEPTH,
    FREE_BLOCK,
    FREE_TERM,
    LIVE,
    NEED_NODES,
    NEED_ROWS,
    NEED_WORDS,
    STATE,
    TARGETS,
    TOTAL_BITS,
    BooleanScratch,
    Forest,
    MessageColumns,
    NewSubscriptions,
)
from nearcast.index._kernels.boolean.match import match_rows

__all__ = [
    "CLASSES",
    "DEPTH",
    "FREE_BLOCK",
    "FREE_TERM",
    "LIVE",
    "NEED_NODES",
    "NEED_ROWS",
    "NEED_WORDS",
    "STATE",
    "TARGETS",
    "TOTAL_BITS",
    "BooleanScratch",
    "Forest",
    "MessageColumns",
    "NewSubscriptions",
    "count_terms",
    "delete_slots",
    "export_terms",
    "insert_branches",
    "match_rows",
    "order_branches",
]
