"""The messages of a window, in rings of flat arrays: an arrival is written over messages that expired before.

    numbers      ... 41  42  43 | 44  45  46  47 ...       each message has the next number
                  expired     first            next
    by message   seqs keys xs ys ats weights codes, and where its part of each lane starts    ring of a power of two
    lanes        terms: term_ids, units    bytes: ids and places as text                      rings, a batch in one
                 orders: the terms in the order of the text, as positions in the row          piece

The position of a number in a ring is the number modulo its size, so nothing is moved and expiry costs nothing. The
key of a message determines when it expires, see `policy`; that of a withdrawn message is the least of all.
Expired messages stay readable until the next append. A ring that is too small is copied to one of twice the size.

Cost: a message of nine terms takes about 310 bytes, and 8 more per attribute; appending a batch is a handful of
copies, whatever its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast import ragged
from nearcast.model import Document, Id, IdColumn, MessageBatch
from nearcast.model.attributes import NULL
from nearcast.model.split_columns import join, split
from nearcast.text import TermOrder, TermRows, Vocabulary, add_up
from nearcast.text.encode import bytes_of, is_worth_a_kernel

if TYPE_CHECKING:
    from nearcast._jit import Arena
    from nearcast.model._kernels.filters import MessageRows

Longs = npt.NDArray[np.int64]

LIVE = pa.schema(
    {"seq": pa.int64(), "id": pa.string(), "id_int": pa.int64(), "x": pa.float64(), "y": pa.float64(),
     "at_us": pa.int64(), "place": pa.string(), "place_int": pa.int64(), "terms": pa.list_(pa.int64()),
     "units": pa.list_(pa.float64()), "weight": pa.float64(), "key": pa.int64(), "order": pa.list_(pa.uint16()),
     "codes": pa.list_(pa.int64())}
)  # fmt: skip
"""The messages of a window as a table."""

_PREFIX = "window"
_LEAST = 64
_BY_MESSAGE: dict[str, Any] = {
    "seqs": np.int64,
    "keys": np.int64,
    "xs": np.float64,
    "ys": np.float64,
    "ats": np.int64,
    "weights": np.float64,
    "term_starts": np.int64,
    "n_terms": np.int32,
    "order_starts": np.int64,
    "n_ordered": np.int32,
    "id_starts": np.int64,
    "id_sizes": np.int32,
    "place_starts": np.int64,
    "place_sizes": np.int32,
}
_LANES: dict[str, dict[str, Any]] = {
    "terms": {"term_ids": np.int64, "units": np.float64},
    "bytes": {"bytes": np.uint8},
    "orders": {"ranks": np.uint16},
}
_STARTS = {"terms": "term_starts", "bytes": "id_starts", "orders": "order_starts"}
_CODES = f"{_PREFIX}.codes"
_NONE = -1
FIRST, NEXT, HORIZON = 0, 1, 2  # positions in the state
_HEADS = {"terms": 3, "bytes": 4, "orders": 5}
_NO_HORIZON = np.iinfo(np.int64).min


class WindowArrays(NamedTuple):
    """The messages of a window as kernels take them; all arrays but the state are by number modulo their size."""

    seqs: Longs
    xs: npt.NDArray[np.float64]
    ys: npt.NDArray[np.float64]
    ats: Longs
    term_starts: Longs
    """int64: start of the terms in their lane, modulo its size."""
    n_terms: npt.NDArray[np.int32]
    term_ids: Longs
    """int64: term numbers, ascending within a message."""
    units: npt.NDArray[np.float64]
    """float64: tf-idf of each term, normalised to length 1 per message."""
    state: Longs
    """int64 (8,): the first number that may be alive, the next number, the horizon, and the ends of the lanes."""


class _Columns(NamedTuple):
    """Messages to append."""

    seqs: Longs
    keys: Longs
    ids: IdColumn
    xs: npt.NDArray[np.float64]
    ys: npt.NDArray[np.float64]
    ats: Longs
    places: Sequence[Id | None]
    """Empty if no message has a place."""
    indptr: Longs
    term_ids: Longs
    units: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    order: TermOrder
    codes: Longs | None


class Store:
    """Messages by number, in an arena; an arena that holds them already is continued."""

    def __init__(self, arena: Arena, n_attributes: int = 0) -> None:
        self._arena = arena
        if f"{_PREFIX}.state" not in arena:
            with arena.together():
                for name, kind in _BY_MESSAGE.items():
                    arena.new(f"{_PREFIX}.{name}", kind, _LEAST)
                for lane in _LANES.values():
                    for name, kind in lane.items():
                        arena.new(f"{_PREFIX}.{name}", kind, _LEAST)
                if n_attributes:
                    arena.new(_CODES, np.int64, _LEAST, columns=n_attributes)
                arena.new(f"{_PREFIX}.state", np.int64, 8)[HORIZON] = _NO_HORIZON

    @property
    def arena(self) -> Arena:
        """The arena of the messages, and of the lists that follow the window."""
        return self._arena

    @property
    def state(self) -> Longs:
        """The counters; see `WindowArrays`."""
        return self._array("state")

    @property
    def arrays(self) -> WindowArrays:
        """The arrays as kernels take them; they change with an append."""
        return self._arena.bundle(_PREFIX, WindowArrays)

    @property
    def rows_for_filters(self) -> MessageRows:
        """The messages as filters read them, by number; they change with an append."""
        from nearcast.model._kernels.filters import MessageRows

        names = ("xs", "ys", "term_starts", "n_terms", "term_ids", "order_starts", "n_ordered", "ranks")
        columns = [self._array(name) for name in names]
        masks = np.array([len(columns[i]) - 1 for i in (0, 4, 7)], np.int64)
        codes = self._codes if self._codes is not None else np.zeros((1, 1), np.int64)
        return MessageRows._make((*columns, codes, masks))

    @property
    def _codes(self) -> Longs | None:
        """The values of attributes, by number modulo the size; None if the engine has no attributes."""
        if _CODES not in self._arena:
            return None
        return self._arena[_CODES]

    @property
    def numbers(self) -> Longs:
        """The numbers that may be alive."""
        return np.arange(self.state[FIRST], self.state[NEXT])

    def of(self, name: str, numbers: Longs) -> npt.NDArray[Any]:
        """Return a column of some messages."""
        column = self._array(name)
        chosen: npt.NDArray[Any] = column[numbers & (len(column) - 1)]
        return chosen

    @property
    def keys(self) -> Longs:
        """The expiry keys, by number modulo their size; they change with an append."""
        return self._array("keys")

    def withdraw(self, numbers: Longs) -> None:
        """Give messages a key that has expired."""
        self.keys[numbers & (len(self.keys) - 1)] = _NO_HORIZON

    def append(self, batch: MessageBatch, keys: Longs) -> Longs:
        """Append messages with their expiry keys; return their numbers."""
        places = batch.places
        if isinstance(places, pa.Array):
            places = [] if places.null_count == len(places) else places.to_pylist()
        elif all(place is None for place in places):
            places = []
        return self._append(
            _Columns(
                batch.seqs, keys, batch.ids, batch.xs, batch.ys, batch.ats_us, places,
                batch.term_indptr, batch.term_ids, batch.units, add_up(batch.idfs, batch.term_indptr),
                batch.order, batch.codes,
            )
        )  # fmt: skip

    def append_table(self, table: pa.Table) -> Longs:
        """Append the messages of a table, see `table`; return their numbers."""
        table = table.combine_chunks()
        terms, units, order = (_flat(table[name]) for name in ("terms", "units", "order"))
        ids, places = (join(table, name) for name in ("id", "place"))
        seqs, keys, xs, ys, ats = (table[name].to_numpy() for name in ("seq", "key", "x", "y", "at_us"))
        return self._append(
            _Columns(
                seqs, keys, IdColumn.of(ids), xs, ys, ats, [] if all(place is None for place in places) else places,
                ragged.starts(terms[0]), terms[1], units[1],
                table["weight"].to_numpy(), TermOrder(ragged.starts(order[0]), order[1]),
                None if self._codes is None else _flat(table["codes"])[1].reshape(len(table), -1),
            )
        )  # fmt: skip

    def table(self, numbers: Longs) -> pa.Table:
        """Return messages with their weighted terms, as a table."""
        lengths = self.of("n_terms", numbers).astype(np.int64)
        at = self._places("term_ids", self.of("term_starts", numbers), lengths)
        indptr = ragged.starts(lengths)
        return pa.table(
            {
                "seq": self.of("seqs", numbers),
                **self.ids(numbers).columns,
                "x": self.of("xs", numbers),
                "y": self.of("ys", numbers),
                "at_us": self.of("ats", numbers),
                **split("place", self._texts("place", numbers)),
                "terms": _lists(indptr, self._array("term_ids")[at]),
                "units": _lists(indptr, self._array("units")[at]),
                "weight": self.of("weights", numbers),
                "key": self.of("keys", numbers),
                "order": _lists(*self._order_of(numbers)),
                "codes": self._code_lists(numbers),
            },
            schema=LIVE,
        )

    def _order_of(self, numbers: Longs) -> TermOrder:
        """Return the order of the terms of messages."""
        lengths = self.of("n_ordered", numbers).astype(np.int64)
        ranks = self._array("ranks")[self._places("ranks", self.of("order_starts", numbers), lengths)]
        return TermOrder(ragged.starts(lengths), ranks)

    def codes(self, numbers: Longs) -> Longs | None:
        """Return the values of the attributes of messages, one row each; None if the engine has no attributes."""
        return None if self._codes is None else self._codes[numbers & (len(self._codes) - 1)]

    def _code_lists(self, numbers: Longs) -> pa.Array:
        codes = self.codes(numbers)
        if codes is None:
            return pa.nulls(len(numbers), pa.list_(pa.int64()))
        return _lists(np.arange(len(codes) + 1) * codes.shape[1], codes.reshape(-1))

    def ids(self, numbers: Longs) -> IdColumn:
        """Return the ids of messages."""
        if is_worth_a_kernel(len(numbers)):
            return self._many_ids(numbers)
        sizes = self.of("id_sizes", numbers)
        if (sizes & 1).any():
            return IdColumn.of(self._texts("id", numbers))
        return IdColumn(self._strings(self.of("id_starts", numbers), sizes >> 1))

    def _many_ids(self, numbers: Longs) -> IdColumn:
        from nearcast.window._kernels.texts import copy_texts, measure_texts

        offsets = np.zeros(len(numbers) + 1, np.int32)
        if measure_texts(self._array("id_sizes"), numbers, offsets):  # some ids are numbers
            return IdColumn.of(self._texts("id", numbers))
        data = np.empty(offsets[-1], np.uint8)
        copy_texts(self._array("bytes"), self._array("id_starts"), numbers, offsets, data)
        return IdColumn(pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(data)))

    def places(self, numbers: Longs) -> list[Id | None]:
        """Return the places of messages, as published."""
        return self._texts("place", numbers)

    def documents(self, numbers: Longs) -> list[Document]:
        """Return messages as the reference scores take them."""
        columns = [self.of(name, numbers).tolist() for name in ("seqs", "xs", "ys", "ats", "weights")]
        lengths = self.of("n_terms", numbers).astype(np.int64)
        at = self._places("term_ids", self.of("term_starts", numbers), lengths)
        terms, units = self._array("term_ids")[at].tolist(), self._array("units")[at].tolist()
        stops = np.cumsum(lengths).tolist()
        made, start = [], 0
        texts = self._texts("id", numbers), self._texts("place", numbers)
        codes, order = self.codes(numbers), self._order_of(numbers)
        rows = [()] * len(numbers) if codes is None else list(map(tuple, codes.tolist()))
        ranks, bounds = order.ranks.tolist(), order.indptr.tolist()
        for i, (seq, x, y, at_us, weight, id_, place, stop) in enumerate(zip(*columns, *texts, stops, strict=True)):
            message_units = dict(zip(terms[start:stop], units[start:stop], strict=True))
            in_order = tuple(terms[start + rank] for rank in ranks[bounds[i] : bounds[i + 1]])
            made.append(Document(seq, id_, (x, y), at_us, place, message_units, weight, rows[i], in_order))
            start = stop
        return made

    def batch(self, numbers: Longs, vocabulary: Vocabulary) -> MessageBatch:
        """Return messages as a batch with the weights that they were published with."""
        lengths = self.of("n_terms", numbers).astype(np.int64)
        at = self._places("term_ids", self.of("term_starts", numbers), lengths)
        term_ids = self._array("term_ids")[at]
        batch = MessageBatch(
            self.of("seqs", numbers),
            self.ids(numbers),
            self.of("xs", numbers),
            self.of("ys", numbers),
            self.of("ats", numbers),
            self.places(numbers),
            TermRows(
                ragged.starts(lengths),
                term_ids,
                np.ones(len(term_ids), np.int32),
                self._order_of(numbers),
            ),
            vocabulary,
            codes=self.codes(numbers),
        )
        batch.__dict__["units"] = self._array("units")[at]  # as published: counts are not kept
        return batch

    def numbers_of(self, seqs: Longs) -> Longs:
        """Return the numbers of those messages with some seqs that are stored, alive or not."""
        first, last = int(self.state[FIRST]), int(self.state[NEXT])
        low, high = np.full(len(seqs), first), np.full(len(seqs), last)
        for _ in range((last - first).bit_length()):  # a binary search for all at once
            middle = (low + high) // 2
            is_before = (low < high) & (self.of("seqs", middle) < seqs)
            low, high = np.where(is_before, middle + 1, low), np.where(is_before, high, np.maximum(middle, low))
        known = low < last
        known[known] = self.of("seqs", low[known]) == seqs[known]
        numbers: Longs = low[known]
        return numbers

    def with_any_term(self, numbers: Longs, term_ids: Longs) -> Longs:
        """Return the messages that hold one of some terms."""
        from nearcast.window._kernels.selection import mark_with_any_term

        marks = np.zeros(len(numbers), np.bool_)
        mark_with_any_term(self.arrays, numbers, np.sort(term_ids), marks)
        found: Longs = numbers[marks]
        return found

    def _append(self, columns: _Columns) -> Longs:
        n, state = len(columns.seqs), self.state
        first, start = int(state[FIRST]), int(state[NEXT])
        numbers = np.arange(start, start + n)
        self._make_room(start + n - first)
        term_start = self._claim("terms", len(columns.term_ids))
        self._write("term_ids", term_start, columns.term_ids)
        self._write("units", term_start, columns.units)
        order_start = self._claim("orders", len(columns.order.ranks))
        self._write("ranks", order_start, columns.order.ranks)
        texts, are_numbers = columns.ids.strings, columns.ids.are_numbers
        if len(columns.places):
            given = [None if place is None else str(place) for place in columns.places]
            texts = pa.concat_arrays([texts.cast(pa.string()), pa.array(given, pa.string())])
            are_numbers = np.concatenate([are_numbers, [isinstance(place, int) for place in columns.places]])
        starts, sizes = self._write_texts(texts, are_numbers)
        sizes[texts.is_null().to_numpy(zero_copy_only=False)] = _NONE
        has_places = len(columns.places) > 0
        at = numbers & (len(self._array("seqs")) - 1)
        for name, values in {
            "seqs": columns.seqs,
            "keys": columns.keys,
            "xs": columns.xs,
            "ys": columns.ys,
            "ats": columns.ats,
            "weights": columns.weights,
            "term_starts": term_start + columns.indptr[:-1] - columns.indptr[0],
            "n_terms": np.diff(columns.indptr),
            "order_starts": order_start + columns.order.indptr[:-1] - columns.order.indptr[0],
            "n_ordered": np.diff(columns.order.indptr),
            "id_starts": starts[:n],
            "id_sizes": sizes[:n],
            "place_starts": starts[n:] if has_places else 0,
            "place_sizes": sizes[n:] if has_places else _NONE,
        }.items():
            self._array(name)[at] = values
        if self._codes is not None:
            self._codes[at] = NULL if columns.codes is None else columns.codes
        state[NEXT] = start + n
        return numbers

    def _make_room(self, n_messages: int) -> None:
        before = len(self._array("seqs"))
        size = before
        while size < n_messages:
            size *= 2
        if size > before:
            numbers = self.numbers
            names = [*_BY_MESSAGE, "codes"] if self._codes is not None else [*_BY_MESSAGE]
            self._renew(names, size, numbers & (before - 1), numbers & (size - 1))

    def _claim(self, lane: str, n: int) -> int:
        """Reserve n contiguous items of a lane, enlarging it if necessary; return their start."""
        state = self.state
        oldest = np.arange(state[FIRST], min(state[FIRST] + 1, state[NEXT]))
        size = before = len(self._array(next(iter(_LANES[lane]))))
        head = int(state[_HEADS[lane]])
        tail = int(self.of(_STARTS[lane], oldest)[0]) if len(oldest) else head
        while True:
            start = head if head % size + n <= size else -(-head // size) * size
            if n <= size and start + n - tail <= size:
                break
            size *= 2
        if size > before:
            held = np.arange(tail, head)
            self._renew(_LANES[lane], size, held & (before - 1), held & (size - 1))
        state[_HEADS[lane]] = start + n
        return start

    def _renew(self, names: Iterable[str], size: int, sources: Longs, targets: Longs) -> None:
        with self._arena.together():
            for name in names:
                before = self._array(name)
                self._arena.renew(f"{_PREFIX}.{name}", size)[targets] = before[sources]

    def _write(self, name: str, start: int, values: npt.NDArray[Any]) -> None:
        lane = self._array(name)
        at = start & (len(lane) - 1)
        lane[at : at + len(values)] = values

    def _write_texts(self, strings: pa.Array, are_numbers: npt.NDArray[np.bool_]) -> tuple[Longs, Longs]:
        """Write texts; return the start of each, and twice its size plus a flag for numbers."""
        data, offsets = bytes_of(strings)
        start = self._claim("bytes", int(offsets[-1] - offsets[0]))
        self._write("bytes", start, data[offsets[0] : offsets[-1]])
        return start + offsets[:-1] - offsets[0], np.diff(offsets) << 1 | are_numbers

    def _texts(self, what: str, numbers: Longs) -> list[Any]:
        """Return ids or places as objects."""
        sizes = self.of(f"{what}_sizes", numbers)
        if (sizes == _NONE).all():
            return [None] * len(numbers)
        is_none = sizes == _NONE
        texts = self._strings(self.of(f"{what}_starts", numbers), np.where(is_none, 0, sizes >> 1)).to_pylist()
        read = zip(texts, is_none.tolist(), (sizes & 1).tolist(), strict=True)
        return [None if missing else int(text) if is_number else text for text, missing, is_number in read]

    def _strings(self, starts: Longs, sizes: npt.NDArray[Any]) -> pa.Array:
        offsets = ragged.starts(sizes).astype(np.int32)
        data = self._array("bytes")[self._places("bytes", starts, sizes.astype(np.int64))]
        return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(data))

    def _places(self, lane: str, starts: Longs, lengths: Longs) -> Longs:
        """Return the positions in a lane of the items of some pieces, one after the other."""
        ends = np.cumsum(lengths)
        size = len(self._array(lane))
        return np.repeat((starts & (size - 1)) - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]


def _lists(indptr: Longs, items: npt.NDArray[Any]) -> pa.Array:
    """Return rows of items as a column of lists."""
    return pa.ListArray.from_arrays(pa.array(indptr.astype(np.int32)), pa.array(items))


def _flat(column: pa.ChunkedArray) -> tuple[Longs, npt.NDArray[Any]]:
    """Return the lengths of lists, and their items."""
    lists = column.combine_chunks()
    return np.diff(lists.offsets.to_numpy()).astype(np.int64), lists.flatten().to_numpy()
