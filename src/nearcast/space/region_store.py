"""Regions of subscriptions by slot, for kernels.

A box or a circle takes 64 bytes, and so does a slot without a region. Polygons take 16 more per point, and 4 for each
cell of a grid and for each edge in it: some 30 per point in all for outlines like those of a map, at most about 4 log
n more for edges that all reach far. Runs lie in blocks that are reused, of the next power of two in size.

Cost: `region_covers` takes some nanoseconds for a box or a circle, 60 at the edge of a circle on the earth, and for
polygons as long as there are edges close to the point, whatever their number. Insertion takes a microsecond for ten
points.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, blocks, column
from nearcast.errors import require
from nearcast.space._kernels import regions as kernels
from nearcast.space._kernels.edge_grid import RegionRows, delete_regions, insert_regions
from nearcast.space._kernels.regions import RegionArrays, filter_by_region, region_covers
from nearcast.space.region_columns import BOX, CIRCLE, NO_REGION, POLYGONS, RegionColumns
from nearcast.space.space import Space

__all__ = ["RegionArrays", "RegionStore", "filter_by_region", "region_covers"]

_FIELDS = [field for field in RegionArrays._fields if field != "shapes"]  # which are the bytes of `lines`


class RegionStore:
    """The regions of one kind of subscriptions; an arena that holds them already is continued.

    >>> from nearcast.space import Box, Polygon
    >>> store = RegionStore(Arena(), Space(Box(0, 0, 9, 9)))
    >>> triangle = Polygon([(0, 0), (4, 0), (0, 4)])
    >>> store.insert(np.array([3, 1], np.int32), RegionColumns.of([triangle, Box(0, 0, 9, 1)]))
    >>> [region_covers(store.arrays, slot, 2.0, 2.0) for slot in (0, 1, 3)]
    [True, False, True]
    """

    def __init__(self, arena: Arena, space: Space, prefix: str = "regions") -> None:
        self._arena, self._space, self._prefix = arena, space, prefix
        if f"{prefix}.lines" not in arena:
            with arena.together():
                arena.new(f"{prefix}.lines", np.int64, 0, kernels.FREE, columns=kernels.LINE)
                arena.new(f"{prefix}.points", np.float64, 0)
                arena.new(f"{prefix}.cells", np.int32, 0)
                arena.new(f"{prefix}.point_state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
                arena.new(f"{prefix}.cell_state", np.int64, blocks.STATE)[blocks.FIRST :] = -1

    @property
    def arrays(self) -> RegionArrays:
        """The current arrays; growth replaces them."""
        lines, *others = (self._arena[f"{self._prefix}.{field}"] for field in _FIELDS)
        return RegionArrays(lines, lines.view(np.float64), *others)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(self._arena[f"{self._prefix}.{field}"].nbytes for field in _FIELDS)

    def insert(self, slots: NDArray[np.int32], columns: RegionColumns) -> None:
        """Insert the region of each row into a slot; slots that have one stay as they are."""
        slots = column(slots, np.int32)
        require(len(slots) == len(columns), "columns", "must have a row for each slot", len(columns))
        if not columns.codes.any():
            return  # no slot needs a place
        rows = self._rows(columns)
        with_region = slots[columns.codes != NO_REGION]
        self._grow(("lines",), int(with_region.max()) + 1)
        done = insert_regions(self.arrays, rows, slots, 0)
        while done < slots.size:
            for pool, state in (("points", "point_state"), ("cells", "cell_state")):
                places = self._arena[f"{self._prefix}.{state}"]
                self._grow((pool,), int(places[blocks.USED] + places[blocks.NEEDED]))
                places[blocks.NEEDED] = 0
            done = insert_regions(self.arrays, rows, slots, done)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete the regions of slots; slots without one stay as they are."""
        if len(slots):
            delete_regions(self.arrays, column(slots, np.int32))

    def _rows(self, columns: RegionColumns) -> RegionRows:
        """Return columns as the slots will hold them."""
        on_earth = self._space.metric == "haversine"
        kind_of = np.zeros(4, np.int8)
        kind_of[BOX], kind_of[POLYGONS] = kernels.PLAIN_BOX, kernels.EDGES
        kind_of[CIRCLE] = kernels.EARTH_CIRCLE if on_earth else kernels.PLANE_CIRCLE
        kinds, shapes = kind_of[columns.codes], columns.boxes.copy()
        kinds[(columns.codes == BOX) & (shapes[:, 0] > shapes[:, 2])] = kernels.WRAPPING_BOX
        is_circle = columns.codes == CIRCLE
        x, y, radius = columns.circles[is_circle].T
        shapes[is_circle] = np.column_stack([x, y, radius, self._space.half_sides(x, y, radius)[0]])
        points = np.require(columns.points, np.float64, ["C", "W"])
        indptrs = (column(columns.ring_indptr, np.int64), column(columns.point_indptr, np.int64))
        return RegionRows(kinds, shapes, *indptrs, points)

    def _grow(self, fields: tuple[str, ...], length: int) -> None:
        self._arena.grow_all([f"{self._prefix}.{field}" for field in fields], length)
