"""Loops of the index of kind `boolean`; see `nearcast.index.boolean` for what the arrays mean and why.

    quantize ─> a coordinate as 43 bits, in order      reach   ─> the lists that a box belongs to
    lanes    ─> a point or a box as 4 x 15 bits        insert, delete, match ─> one call a batch

A box against a point is one subtraction: four lanes of 14 bits, each with a guard bit above it. The point sets the
guards, the box is subtracted, and a guard survives where the point's lane is not below the box's:

    lane            0       1               2       3
    point           x       16383 - x       y       16383 - y           + guards
    box             xmin    16383 - xmax    ymin    16383 - ymax

Coordinates in the lanes are those of the list's cell in 8192 steps, plus 1; 0 and 8193 stand for "beyond the cell".
Rounding to steps keeps the order, so unequal steps decide, and equal ones mean: ask the box itself.
"""

from nearcast.index._kernels.boolean.change import (
    boolean_delete,
    boolean_export,
    boolean_insert,
    boolean_order,
    boolean_sizes,
)
from nearcast.index._kernels.boolean.layout import (
    CANDIDATES,
    CLASSES,
    DEPTH,
    FILLED,
    LIVE,
    NEED_NODES,
    NEED_ROWS,
    NEED_WORDS,
    NEEDED,
    TARGETS,
    TOTAL_BITS,
    VISITED,
    Arrivals,
    BooleanWorkspace,
    Forest,
    Messages,
)
from nearcast.index._kernels.boolean.match import boolean_match

__all__ = [
    "CANDIDATES",
    "CLASSES",
    "DEPTH",
    "FILLED",
    "LIVE",
    "NEEDED",
    "NEED_NODES",
    "NEED_ROWS",
    "NEED_WORDS",
    "TARGETS",
    "TOTAL_BITS",
    "VISITED",
    "Arrivals",
    "BooleanWorkspace",
    "Forest",
    "Messages",
    "boolean_delete",
    "boolean_export",
    "boolean_insert",
    "boolean_match",
    "boolean_order",
    "boolean_sizes",
]
