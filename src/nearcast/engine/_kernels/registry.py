"""Ids, texts and a directory of ids as flat arrays; see `nearcast.engine.registry`.

A *head* is two words: up to eleven bytes of the id, the position of the record, and a code:

    low    b b b b b b b b                  high   b b b | where where where where | code
    code   0..11 is the length of the id, LONG means that the record holds it; + NUMBER if it is an integer

A *record* is a run of texts in whole words: for each text its length and kind in one variable-length number, then its
bytes. Free blocks are reused for the same size. Unused bytes of a head are zero, so equal ids have equal heads apart
from the position of the record.

The *directory* consists of segments of 1,024 entries, each a small hash table. A full segment splits in two by one
more bit of the hash, so growth never takes longer than one split. Where splitting would only deepen the directory,
because too many hashes are alike, a full segment continues in another one instead: any number of equal hashes takes
no more room than other ids do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch

SHORT = 11
LONG, NUMBER = 12, 16
SEGMENT_BITS = 10
SEGMENT = 1 << SEGMENT_BITS
FULLEST = SEGMENT * 13 // 16
SPARSE = 16
"""A directory with more than this many times its segments has too many hashes alike, and deepens no further."""
HASH_BITS, SLOT_BITS = 32, 31
CLASSES = 128
USED, N_SEGMENTS, N_SLOTS, N_FREE, DEPTH = 0, 1, 2, 3, 4
STATE = 8
FREE = -1

_EXACT = 64  # sizes in words up to this have their own blocks
_SLOT = (1 << SLOT_BITS) - 1
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_CODE = np.uint64(56)
_WHERE = np.uint64(24)
_WHERE_MASK = np.uint64(((1 << 32) - 1) << 24)
_IN_HIGH = np.uint64((1 << 24) - 1)
_AHEAD = 32  # heads are prefetched this many names ahead


class RegistryArrays(NamedTuple):
    """The ids and texts of a registry."""

    heads: NDArray[np.uint64]
    """uint64 (n_slots, 2): see above."""
    words: NDArray[np.uint64]
    """uint64 (room,): records; the first word of a free block is 1 + the position of the next of its size, or 0."""
    data: NDArray[np.uint8]
    """uint8 (8 x room,): the bytes of `words`."""
    free: NDArray[np.int64]
    """int64 (CLASSES,): 1 + the position of the first free block of each size, or 0."""
    entries: NDArray[np.int64]
    """int64 (n_segments x SEGMENT,): 32 bits of hash, 31 of slot; FREE for an empty entry."""
    segments: NDArray[np.int32]
    """int32 (2 ** depth,): the segment of the hashes with these leading bits."""
    depths: NDArray[np.uint8]
    """uint8 (n_segments,): number of leading bits that all hashes of a segment share."""
    counts: NDArray[np.int32]
    """int32 (n_segments,): entries in use."""
    links: NDArray[np.int32]
    """int32 (n_segments,): the segment in which a full one continues, or FREE."""
    state: NDArray[np.int64]
    """int64 (STATE,): words used, segments used, slots allocated, slots free, bits that select a segment."""


class TextColumn(NamedTuple):
    """Strings in a column, `width` per row."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    """int64 (n x width + 1,)."""
    kinds: NDArray[np.uint8]
    """uint8 (n x width,): two bits for the type of the value."""


# -- heads ------------------------------------------------------------------------------------------------------


@kernel
def _gather(data: NDArray[np.uint8], start: int, n: int) -> np.uint64:
    """Return up to eight bytes as a word."""
    word = _ZERO
    for i in range(n):
        word |= np.uint64(data[start + i]) << np.uint64(8 * i)
    return word


@kernel
def _high(data: NDArray[np.uint8], start: int, stop: int, kind: int) -> np.uint64:
    """Return the second word of a head, without the position of a record."""
    n = stop - start
    code = (n if n <= SHORT else LONG) + NUMBER * kind
    word = np.uint64(code) << _CODE
    if 8 < n <= SHORT:
        word |= _gather(data, start + 8, n - 8)
    return word


@kernel
def _low(data: NDArray[np.uint8], start: int, stop: int) -> np.uint64:
    """Return the first word of a head."""
    return _gather(data, start, min(stop - start, 8))


@kernel
def _where(high: np.uint64) -> int:
    return np.int64((high & _WHERE_MASK) >> _WHERE)  # type: ignore[return-value]


@kernel
def _code(high: np.uint64) -> int:
    return np.int64(high >> _CODE)  # type: ignore[return-value]


@kernel
def _is_long(high: np.uint64) -> bool:
    return (_code(high) & (NUMBER - 1)) == LONG


# -- records ----------------------------------------------------------------------------------------------------


@kernel
def _size_of_number(number: int) -> int:
    n = 1
    while number >= 128:
        number >>= 7
        n += 1
    return n


@kernel
def _write_number(data: NDArray[np.uint8], at: int, number: int) -> int:
    """Write a number, seven bits per byte; return where it ends."""
    while number >= 128:
        data[at] = 128 | (number & 127)
        number >>= 7
        at += 1
    data[at] = number
    return at + 1


@kernel
def _read_number(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    number, shift = 0, 0
    while data[at] >= 128:
        number |= (int(data[at]) & 127) << shift
        shift += 7
        at += 1
    return number | (int(data[at]) << shift), at + 1


@kernel
def _class_of(n_words: int) -> int:
    if n_words <= _EXACT:
        return n_words
    power = 0
    while (1 << power) < n_words:
        power += 1
    return _EXACT + power


@kernel
def _words_of(size_class: int) -> int:
    return size_class if size_class <= _EXACT else 1 << (size_class - _EXACT)


@kernel
def _take_block(arrays: RegistryArrays, n_bytes: int) -> int:
    """Return the position of a free block of words; the pool is large enough."""
    size_class = _class_of((n_bytes + 7) >> 3)
    first = int(arrays.free[size_class])
    if first != 0:
        arrays.free[size_class] = np.int64(arrays.words[first - 1])
        return first - 1
    at = int(arrays.state[USED])
    arrays.state[USED] += _words_of(size_class)
    return at


@kernel
def _free_block(arrays: RegistryArrays, at: int, n_bytes: int) -> None:
    size_class = _class_of((n_bytes + 7) >> 3)
    arrays.words[at] = np.uint64(arrays.free[size_class])
    arrays.free[size_class] = at + 1


@kernel
def _size_of_record(ids: TextColumn, texts: TextColumn, row: int, width: int) -> int:
    n = int(ids.offsets[row + 1] - ids.offsets[row])
    size = n + _size_of_number(n << 2) if n > SHORT else 0
    for i in range(row * width, row * width + width):
        n = int(texts.offsets[i + 1] - texts.offsets[i])
        size += n + _size_of_number(n << 2)
    return size


@kernel
def _write_text(data: NDArray[np.uint8], at: int, texts: TextColumn, i: int) -> int:
    start, n = int(texts.offsets[i]), int(texts.offsets[i + 1] - texts.offsets[i])
    at = _write_number(data, at, (n << 2) | int(texts.kinds[i]))
    for j in range(n):
        data[at + j] = texts.data[start + j]
    return at + n


@kernel
def write_rows(arrays: RegistryArrays, ids: TextColumn, texts: TextColumn, slots: NDArray[np.int32]) -> None:
    """Write the heads and records of slots; the pool is large enough."""
    width = texts.kinds.size // slots.size
    for row in range(slots.size):
        start, stop = ids.offsets[row], ids.offsets[row + 1]
        where = _take_block(arrays, _size_of_record(ids, texts, row, width))
        at = where << 3
        if stop - start > SHORT:
            at = _write_text(arrays.data, at, ids, row)
        for i in range(row * width, row * width + width):
            at = _write_text(arrays.data, at, texts, i)
        arrays.heads[slots[row], 0] = _low(ids.data, start, stop)
        high = _high(ids.data, start, stop, int(ids.kinds[row]))
        arrays.heads[slots[row], 1] = high | (np.uint64(where) << _WHERE)


@kernel
def free_rows(arrays: RegistryArrays, slots: NDArray[np.int32], width: int) -> None:
    """Free the records of slots."""
    for slot in slots:
        high = arrays.heads[slot, 1]
        first = at = _where(high) << 3
        for _ in range(width + _is_long(high)):
            number, at = _read_number(arrays.data, at)
            at += number >> 2
        _free_block(arrays, first >> 3, at - first)


@kernel
def size_rows(arrays: RegistryArrays, slots: NDArray[np.int32], width: int, sizes: NDArray[np.int64]) -> None:
    """Add up the bytes of ids in `sizes[0]` and those of texts in `sizes[1]`."""
    for slot in slots:
        high = arrays.heads[slot, 1]
        at = _where(high) << 3
        if _is_long(high):
            number, at = _read_number(arrays.data, at)
            sizes[0] += number >> 2
            at += number >> 2
        else:
            sizes[0] += _code(high) & (NUMBER - 1)
        for _ in range(width):
            number, at = _read_number(arrays.data, at)
            sizes[1] += number >> 2
            at += number >> 2


@kernel
def read_rows(arrays: RegistryArrays, slots: NDArray[np.int32], ids: TextColumn, texts: TextColumn) -> None:
    """Write the ids and texts of slots into columns of sufficient size."""
    width = texts.kinds.size // slots.size
    for row in range(slots.size):
        low, high = arrays.heads[slots[row], 0], arrays.heads[slots[row], 1]
        at = _where(high) << 3
        to = ids.offsets[row]
        n = _code(high) & (NUMBER - 1)
        ids.kinds[row] = _code(high) >= NUMBER
        if n == LONG:
            number, at = _read_number(arrays.data, at)
            n = number >> 2
            for j in range(n):
                ids.data[to + j] = arrays.data[at + j]
            at += n
        else:
            for j in range(n):
                word = low >> np.uint64(8 * j) if j < 8 else high >> np.uint64(8 * (j - 8))
                ids.data[to + j] = np.uint8(word & np.uint64(255))
        ids.offsets[row + 1] = to + n
        for i in range(row * width, row * width + width):
            number, at = _read_number(arrays.data, at)
            n, to = number >> 2, texts.offsets[i]
            texts.kinds[i] = number & 3
            for j in range(n):
                texts.data[to + j] = arrays.data[at + j]
            texts.offsets[i + 1] = to + n
            at += n


# -- the directory ----------------------------------------------------------------------------------------------


@kernel
def _hash_of(key: np.uint64) -> int:
    return np.int64(key >> np.uint64(64 - HASH_BITS))  # type: ignore[return-value]


@kernel
def _segment_of(arrays: RegistryArrays, hash_: int) -> int:
    """Return the segment of a hash."""
    return int(arrays.segments[hash_ >> (HASH_BITS - arrays.state[DEPTH])])


@kernel
def _is_same(arrays: RegistryArrays, slot: int, ids: TextColumn, row: int, low: np.uint64, high: np.uint64) -> bool:
    """Return whether a slot has the id of a row, whose head is given."""
    there = arrays.heads[slot, 1]
    if arrays.heads[slot, 0] != low or (there & ~_WHERE_MASK) != high:
        return False
    if not _is_long(high):
        return True
    number, at = _read_number(arrays.data, _where(there) << 3)
    start, n = ids.offsets[row], ids.offsets[row + 1] - ids.offsets[row]
    if number >> 2 != n:
        return False
    for j in range(8, n):  # noqa: SIM110 (kernels have no generators)
        if arrays.data[at + j] != ids.data[start + j]:
            return False
    return True


@kernel
def _find(
    arrays: RegistryArrays, ids: TextColumn, row: int, hash_: int, low: np.uint64, high: np.uint64, segment: int
) -> int:
    """Return the slot of an id in a segment, or FREE."""
    first = segment << SEGMENT_BITS
    at = hash_ & (SEGMENT - 1)
    entry = arrays.entries[first + at]
    while entry != FREE:
        if (entry >> SLOT_BITS) == hash_ and _is_same(arrays, entry & _SLOT, ids, row, low, high):
            return int(entry & _SLOT)
        at = (at + 1) & (SEGMENT - 1)
        entry = arrays.entries[first + at]
    return FREE


@kernel
def find_ids(arrays: RegistryArrays, ids: TextColumn, keys: NDArray[np.uint64], slots: NDArray[np.int32]) -> None:
    """Write the slot of each id, or FREE."""
    for row in range(slots.size):
        start, stop = ids.offsets[row], ids.offsets[row + 1]
        low, high = _low(ids.data, start, stop), _high(ids.data, start, stop, int(ids.kinds[row]))
        hash_ = _hash_of(keys[row])
        segment = _segment_of(arrays, hash_)
        found = _find(arrays, ids, row, hash_, low, high, segment)
        while found == FREE and arrays.links[segment] != FREE:
            segment = int(arrays.links[segment])
            found = _find(arrays, ids, row, hash_, low, high, segment)
        slots[row] = found


@kernel
def _insert(arrays: RegistryArrays, segment: int, entry: int) -> None:
    """Insert an entry into a segment that is not full."""
    first = segment << SEGMENT_BITS
    at = (entry >> SLOT_BITS) & (SEGMENT - 1)
    while arrays.entries[first + at] != FREE:
        at = (at + 1) & (SEGMENT - 1)
    arrays.entries[first + at] = entry
    arrays.counts[segment] += 1


@kernel(allocates=True)
def _split(arrays: RegistryArrays, segment: int, hash_: int, moved: NDArray[np.int64]) -> None:
    """Move half of a segment, by the next bit of the hash, to a new one; the directory is large and deep enough."""
    depth = int(arrays.depths[segment]) + 1
    fresh = arrays.state[N_SEGMENTS]
    arrays.state[N_SEGMENTS] += 1
    arrays.depths[segment] = arrays.depths[fresh] = depth
    span = arrays.segments.size >> depth
    begin = (hash_ >> (HASH_BITS - depth + 1)) * 2 * span
    for i in range(begin + span, begin + 2 * span):
        arrays.segments[i] = fresh
    first = segment << SEGMENT_BITS
    moved[:] = arrays.entries[first : first + SEGMENT]
    for i in range(SEGMENT):
        arrays.entries[first + i] = FREE
    arrays.counts[segment] = 0
    for entry in moved:
        if entry != FREE:
            upper = (entry >> (SLOT_BITS + HASH_BITS - depth)) & 1
            _insert(arrays, fresh if upper else segment, entry)


@kernel
def _cannot_split(arrays: RegistryArrays, segment: int) -> bool:
    """Return whether a full segment must continue in another one."""
    n_bits = int(arrays.depths[segment])
    is_deepest = 1 << n_bits == arrays.segments.size
    return n_bits == HASH_BITS or (is_deepest and arrays.segments.size > SPARSE * arrays.state[N_SEGMENTS])


@kernel
def _continue_in_new(arrays: RegistryArrays, segment: int) -> int:
    """Add a segment in which a full one continues, and return it."""
    fresh = int(arrays.state[N_SEGMENTS])
    arrays.state[N_SEGMENTS] += 1
    arrays.depths[fresh] = arrays.depths[segment]
    arrays.links[segment] = fresh
    return fresh


@kernel
def insert_ids(
    arrays: RegistryArrays, keys: NDArray[np.uint64], slots: NDArray[np.int32], start: int, moved: NDArray[np.int64]
) -> int:
    """Insert new ids from row `start` on; return the row before which the directory must grow."""
    for row in range(start, slots.size):
        hash_ = _hash_of(keys[row])
        segment = head = _segment_of(arrays, hash_)
        while arrays.counts[segment] >= FULLEST:
            if arrays.links[segment] != FREE:
                segment = int(arrays.links[segment])
                continue
            n_segments = arrays.state[N_SEGMENTS]
            if n_segments == arrays.depths.size or (n_segments + 1) << SEGMENT_BITS > arrays.entries.size:
                return row
            if segment != head or _cannot_split(arrays, segment):
                segment = _continue_in_new(arrays, segment)
                continue
            if 1 << int(arrays.depths[segment]) == arrays.segments.size:
                return row
            _split(arrays, segment, hash_, moved)
            segment = head = _segment_of(arrays, hash_)
        _insert(arrays, segment, (hash_ << SLOT_BITS) | int(slots[row]))
    return slots.size


@kernel
def _position(arrays: RegistryArrays, segment: int, wanted: int) -> int:
    """Return where a segment holds an entry, or FREE."""
    first = segment << SEGMENT_BITS
    at = (wanted >> SLOT_BITS) & (SEGMENT - 1)
    while arrays.entries[first + at] != wanted:
        if arrays.entries[first + at] == FREE:
            return FREE
        at = (at + 1) & (SEGMENT - 1)
    return at


@kernel
def remove_ids(arrays: RegistryArrays, keys: NDArray[np.uint64], slots: NDArray[np.int32]) -> None:
    """Remove existing ids; entries after a gap move back, so that no tombstones are needed."""
    last = SEGMENT - 1
    for row in range(slots.size):
        hash_ = _hash_of(keys[row])
        segment, wanted = _segment_of(arrays, hash_), (hash_ << SLOT_BITS) | int(slots[row])
        hole = _position(arrays, segment, wanted)
        while hole == FREE:
            segment = int(arrays.links[segment])
            hole = _position(arrays, segment, wanted)
        first = segment << SEGMENT_BITS
        at = (hole + 1) & last
        entry = arrays.entries[first + at]
        while entry != FREE:
            bucket = (entry >> SLOT_BITS) & last
            if ((at - bucket) & last) >= ((at - hole) & last):
                arrays.entries[first + hole] = entry
                hole = at
            at = (at + 1) & last
            entry = arrays.entries[first + at]
        arrays.entries[first + hole] = FREE
        arrays.counts[segment] -= 1


# -- names in bulk ----------------------------------------------------------------------------------------------


class Strings(NamedTuple):
    """Strings to be repeated."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    heads: NDArray[np.uint64]
    """uint64 (n, 2): the first 16 bytes of each as words, so that most are written without reading their bytes."""


class StringOutput(NamedTuple):
    """A column of strings under construction, as words: strings are shifted into place, not copied byte by byte."""

    words: NDArray[np.uint64]
    """uint64 (room,)."""
    offsets: NDArray[np.int32]
    """int32 (n + 1,)."""
    held: NDArray[np.uint64]
    """uint64 (1,): bytes that do not fill a word yet."""


@kernel
def _push(
    words: NDArray[np.uint64], total: int, pending: np.uint64, word: np.uint64, n: int
) -> tuple[int, np.uint64]:
    """Append up to eight bytes of a word; return the new total and the pending bytes."""
    filled = total & 7
    pending |= word << np.uint64(8 * filled)
    if filled + n >= 8:
        words[total >> 3] = pending
        pending = word >> np.uint64(8 * (8 - filled)) if filled > 0 else _ZERO
    return total + n, pending


@kernel
def _push_bytes(
    words: NDArray[np.uint64], total: int, pending: np.uint64, data: NDArray[np.uint8], start: int, stop: int
) -> tuple[int, np.uint64]:
    for at in range(start, stop, 8):
        n = min(8, stop - at)
        total, pending = _push(words, total, pending, _gather(data, at, n), n)
    return total, pending


@kernel
def write_names(arrays: RegistryArrays, slots: NDArray[np.int32], start: int, out: StringOutput) -> int:
    """Write the ids of slots from row `start` on as strings; return the row at which the output was full, or n."""
    total, pending = int(out.offsets[start]), out.held[0]
    words, ends = out.words, out.offsets
    room = words.size << 3
    done = slots.size
    for row in range(start, slots.size):
        prefetch(arrays.heads, slots[min(row + _AHEAD, slots.size - 1)])
        low, high = arrays.heads[slots[row], 0], arrays.heads[slots[row], 1]
        n = _code(high) & (NUMBER - 1)
        at = 0
        if n == LONG:
            number, at = _read_number(arrays.data, _where(high) << 3)
            n = number >> 2
        if total + n + 16 > room:
            done = row
            break
        if at > 0:
            total, pending = _push_bytes(words, total, pending, arrays.data, at, at + n)
        else:
            total, pending = _push(words, total, pending, low, min(n, 8))
            if n > 8:
                total, pending = _push(words, total, pending, high & _IN_HIGH, n - 8)
        ends[row + 1] = total
    words[total >> 3] = pending
    out.held[0] = pending
    return done


@kernel
def gather_heads(strings: Strings) -> None:
    """Write the first 16 bytes of each string as words."""
    for row in range(strings.heads.shape[0]):
        first = strings.offsets[row]
        n = strings.offsets[row + 1] - first
        strings.heads[row, 0] = _gather(strings.data, first, min(n, 8))
        strings.heads[row, 1] = _gather(strings.data, first + 8, max(0, min(n - 8, 8)))


@kernel
def repeat_names(strings: Strings, rows: NDArray[np.int64], start: int, out: StringOutput) -> int:
    """Write strings by row, with their heads; return the row at which the output was full, or n."""
    total, pending = int(out.offsets[start]), out.held[0]
    words, ends = out.words, out.offsets
    room = words.size << 3
    done = rows.size
    before, first, n, low, high = -1, 0, 0, _ZERO, _ZERO
    for i in range(start, rows.size):
        if rows[i] != before:
            before = rows[i]
            first, n = strings.offsets[before], strings.offsets[before + 1] - strings.offsets[before]
            low, high = strings.heads[before, 0], strings.heads[before, 1]
        if total + n + 16 > room:
            done = i
            break
        total, pending = _push(words, total, pending, low, min(n, 8))
        if n > 8:
            total, pending = _push(words, total, pending, high, min(n - 8, 8))
            if n > 16:
                total, pending = _push_bytes(words, total, pending, strings.data, first + 16, first + n)
        ends[i + 1] = total
    words[total >> 3] = pending
    out.held[0] = pending
    return done
