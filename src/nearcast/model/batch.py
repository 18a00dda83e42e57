"""Batches of messages as columns: one array per field, terms in compressed rows.

    ids      m1          m2       m3
    xs, ys   . .         . .      . .
    term_indptr  0          3        5        8
    term_ids     t t t      t t      t t t          int64, distinct and ascending within a row
    term_counts  1 2 1      1 1      1 1 1          occurrences of each in the text
    idfs, units  weights of each under the engine's vocabulary
    codes        1 .   2 .    . .                   one column per attribute of the engine

A batch is checked as a whole before anything else happens to it; one message is a batch of one. Terms and weights are
computed on demand: threads that divide a batch compute those of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import InvalidInput
from nearcast.model.attributes import NO_ATTRIBUTES, Attributes
from nearcast.model.document import Document
from nearcast.model.facet_columns import terms_with_values
from nearcast.model.id_column import IdColumn
from nearcast.model.identity import Id
from nearcast.model.limits import Limits
from nearcast.model.message import Message
from nearcast.model.timestamps import to_end_us, to_us
from nearcast.space import Space
from nearcast.text import TermOrder, TermRows, Text, Vocabulary, add_up, to_units

if TYPE_CHECKING:
    from nearcast.model._kernels.filters import MessageRows
    from nearcast.worker_pool import WorkerPool

_WEIGHTS = ("idfs", "units")


@dataclass(frozen=True)
class MessageBatch:
    """Messages as columns, weighted under one vocabulary."""

    seqs: npt.NDArray[np.int64]
    ids: IdColumn
    xs: npt.NDArray[np.float64]
    ys: npt.NDArray[np.float64]
    ats_us: npt.NDArray[np.int64]
    """Microseconds since the epoch, NO_TIME where there is none."""
    places: Sequence[Id | None] | pa.Array
    texts: Sequence[Text] | pa.Array | TermRows
    """The texts, or their terms if the messages came as terms."""
    vocabulary: Vocabulary
    expires_us: npt.NDArray[np.int64] | None = None
    """When each message expires, in microseconds since the epoch, NEVER where it does not; None if none does."""
    bodies: pa.Array | None = None
    """The bodies, null where there is none; None if no message has one."""
    codes: npt.NDArray[np.int64] | None = None
    """int64 (n, n_attributes): the values of the engine's attributes, see `Attributes`; None if it has none."""
    facet_values: npt.NDArray[np.int64] | None = None
    """int64 (n,): the value with which the terms of a row are combined, 0 for none, see `Facets`; None for all 0."""
    faceted: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Other forms of the batch, kept by `Facets` that made them."""

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def empty(cls) -> MessageBatch:
        """Return a batch of no messages."""
        return cls.from_messages((), vocabulary=Vocabulary.with_weights({}))

    @classmethod
    def from_messages(
        cls,
        messages: Iterable[Message],
        *,
        vocabulary: Vocabulary,
        first_seq: int = 1,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> MessageBatch:
        """Return message objects as columns."""
        listed = list(messages)
        for i, message in enumerate(listed):
            if not isinstance(message, Message):
                raise InvalidInput("messages", "must hold Message objects", message, subject=f"item {i}")
        locations = np.array([m.location for m in listed], dtype=np.float64).reshape(-1, 2)
        return cls.from_columns(
            ids=[m.id for m in listed],
            xs=locations[:, 0].copy(),
            ys=locations[:, 1].copy(),
            ats_us=np.array([to_us(m.at) for m in listed], dtype=np.int64),
            places=[m.place for m in listed],
            texts=[m.text for m in listed],
            vocabulary=vocabulary,
            first_seq=first_seq,
            expires_us=_expires_us(listed),
            bodies=_bodies(listed),
            codes=_codes(listed, attributes, vocabulary),
        )

    @classmethod
    def from_columns(
        cls,
        *,
        ids: IdColumn | Sequence[Id],
        xs: npt.NDArray[np.float64],
        ys: npt.NDArray[np.float64],
        ats_us: npt.NDArray[np.int64],
        places: Sequence[Id | None] | pa.Array,
        texts: Sequence[Text] | pa.Array | TermRows,
        vocabulary: Vocabulary,
        first_seq: int = 1,
        expires_us: npt.NDArray[np.int64] | None = None,
        bodies: pa.Array | None = None,
        codes: npt.NDArray[np.int64] | None = None,
    ) -> MessageBatch:
        """Return columns as a batch; texts are objects, an Arrow array or rows of terms."""
        seqs = np.arange(first_seq, first_seq + len(ids), dtype=np.int64)
        column = ids if isinstance(ids, IdColumn) else IdColumn.of(ids)
        return cls(seqs, column, xs, ys, ats_us, places, texts, vocabulary, expires_us, bodies, codes)

    @cached_property
    def terms(self) -> TermRows:
        """The texts as rows of term ids."""
        return self.texts if isinstance(self.texts, TermRows) else self.vocabulary.encode(self.texts)

    @cached_property
    def order(self) -> TermOrder:
        """The terms of each message in the order of its text."""
        self.prepare_order()
        if self.terms.order is None:
            raise InvalidInput("messages", "must hold terms with their order", "terms without it")
        return self.terms.order

    def prepare_order(self) -> None:
        """Encode texts with the order of their terms, so that they are encoded once."""
        if not isinstance(self.texts, TermRows) and ("terms" not in self.__dict__ or self.terms.order is None):
            self.__dict__["terms"] = self.vocabulary.encode(self.texts, ordered=True)

    @property
    def term_indptr(self) -> npt.NDArray[np.int64]:
        """int64 (n + 1,): where the terms of each row begin."""
        return self.terms.indptr

    @property
    def term_ids(self) -> npt.NDArray[np.int64]:
        """Term ids, distinct and ascending within a row."""
        return self.terms.ids

    @property
    def term_counts(self) -> npt.NDArray[np.int32]:
        """Occurrences of each term in the text."""
        return self.terms.counts

    @cached_property
    def idfs(self) -> npt.NDArray[np.float64]:
        """The idf of each term."""
        return self.vocabulary.idfs_of(self.term_ids)

    @cached_property
    def units(self) -> npt.NDArray[np.float64]:
        """The tf-idf of each term; each row has length 1."""
        return to_units(self.idfs, self.term_counts, self.term_indptr)

    def check(self, space: Space) -> None:
        """Raise `InvalidInput` for the first message whose location is not finite or outside the bounds."""
        b = space.bounds
        bad = ~(
            (self.xs >= b.xmin) & (self.xs <= b.xmax) & (self.ys >= b.ymin) & (self.ys <= b.ymax)
        )  # written so that NaN is bad
        if bad.any():
            row = int(np.argmax(bad))
            location = (float(self.xs[row]), float(self.ys[row]))
            finite = np.isfinite(location).all()
            rule = f"must lie in {b}" if finite else "must be a pair of finite numbers"
            raise InvalidInput("location", rule, location, subject=f"message {self.ids[row]!r}")

    def take(self, rows: npt.NDArray[np.int64]) -> MessageBatch:
        """Return the given rows, in that order."""
        self.prepare_order()
        return MessageBatch(
            self.seqs[rows],
            self.ids.take(rows),
            self.xs[rows],
            self.ys[rows],
            self.ats_us[rows],
            self._places(rows),
            self.terms.take(rows),
            self.vocabulary,
            None if self.expires_us is None else self.expires_us[rows],
            None if self.bodies is None else self.bodies.take(pa.array(rows)),
            None if self.codes is None else self.codes[rows],
        )

    def _places(self, rows: npt.NDArray[np.int64]) -> Sequence[Id | None] | pa.Array:
        if isinstance(self.places, pa.Array):
            return self.places.take(pa.array(rows))
        return [self.places[i] for i in rows.tolist()]

    def slice(self, start: int, stop: int) -> MessageBatch:
        """Return a range of rows without a copy; terms that are not computed yet stay so."""
        made = MessageBatch(
            self.seqs[start:stop],
            self.ids.slice(start, stop),
            self.xs[start:stop],
            self.ys[start:stop],
            self.ats_us[start:stop],
            self.places[start:stop],
            self.texts.slice(start, stop) if isinstance(self.texts, TermRows) else self.texts[start:stop],
            self.vocabulary,
            None if self.expires_us is None else self.expires_us[start:stop],
            None if self.bodies is None else self.bodies[start:stop],
            None if self.codes is None else self.codes[start:stop],
        )
        if "terms" in self.__dict__:
            made.__dict__["terms"] = self.terms.slice(start, stop)
            first, last = self.term_indptr[[start, stop]].tolist()
            made.__dict__.update(
                {name: self.__dict__[name][first:last] for name in _WEIGHTS if name in self.__dict__}
            )
        return made

    def divided(self, cuts: Sequence[int], pool: WorkerPool, *, ordered: bool) -> list[MessageBatch]:
        """Return the rows between some cuts, whose terms and weights the threads of a pool have computed.

        This batch has them, too, afterwards, with the order of terms if it is wanted.
        """
        if len(cuts) == 2:
            return [self]
        parts = [self.slice(start, stop) for start, stop in pairwise(cuts)]

        def weigh(part: MessageBatch) -> npt.NDArray[np.float64]:
            if ordered:
                part.prepare_order()
            return part.units  # of the terms and their idfs, which are kept, too

        pool.map(weigh, parts)
        if not isinstance(self.texts, TermRows):
            self.__dict__["terms"] = TermRows.joined([part.terms for part in parts])
        for name in _WEIGHTS:
            if name not in self.__dict__:
                self.__dict__[name] = np.concatenate([part.__dict__[name] for part in parts])
        return parts

    @cached_property
    def for_routing(self) -> MessageBatch:
        """The batch as partitioners see it: the values of attributes are terms, as in `routing_footprints`."""
        if self.codes is None:
            return self
        terms = terms_with_values(self.terms, self.codes, self.vocabulary.hash_key)
        return self.with_terms(terms, np.arange(len(self)))

    def with_terms(
        self,
        terms: TermRows,
        rows: npt.NDArray[np.int64],
        *,
        weights: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None,
        facet_values: npt.NDArray[np.int64] | None = None,
    ) -> MessageBatch:
        """Return the given rows with other terms, and maybe with their idfs, units and facet values."""
        made = MessageBatch(
            self.seqs[rows], self.ids.take(rows), self.xs[rows], self.ys[rows], self.ats_us[rows],
            self._places(rows), terms, self.vocabulary, facet_values=facet_values,
        )  # fmt: skip
        if weights is not None:
            made.__dict__.update(zip(("idfs", "units"), weights, strict=True))
        return made

    @cached_property
    def documents(self) -> list[Document]:
        """The messages as documents, for reference scores."""
        made = []
        bounds = self.term_indptr.tolist()
        numbers, units = self.term_ids.tolist(), self.units.tolist()
        weights = add_up(self.idfs, self.term_indptr).tolist()
        columns = zip(
            self.seqs.tolist(),
            self.ids,
            self.xs.tolist(),
            self.ys.tolist(),
            self.ats_us.tolist(),
            self.places.to_pylist() if isinstance(self.places, pa.Array) else self.places,
            strict=True,
        )
        codes = [()] * len(self) if self.codes is None else [tuple(row) for row in self.codes.tolist()]
        orders = self._ordered_terms()
        for row, (seq, id_, x, y, at_us, place) in enumerate(columns):
            start, stop = bounds[row], bounds[row + 1]
            held = dict(zip(numbers[start:stop], units[start:stop], strict=True))
            made.append(Document(seq, id_, (x, y), at_us, place, held, weights[row], codes[row], orders[row]))
        return made

    def _ordered_terms(self) -> list[tuple[int, ...]]:
        """Return the term ids of each message in the order of its text; empty where it is not known."""
        if isinstance(self.texts, TermRows) and self.texts.order is None:
            return [()] * len(self)
        rows = np.repeat(self.term_indptr[:-1], np.diff(self.order.indptr))
        ids, bounds = self.term_ids[rows + self.order.ranks].tolist(), self.order.indptr.tolist()
        return [tuple(ids[a:b]) for a, b in pairwise(bounds)]

    @cached_property
    def rows_for_filters(self) -> MessageRows:
        """The messages as filters read them, without the order of terms."""
        return self._message_rows(None)

    @cached_property
    def ordered_rows_for_filters(self) -> MessageRows:
        """The messages as filters with phrases read them."""
        return self._message_rows(self.order)

    def _message_rows(self, order: TermOrder | None) -> MessageRows:
        from nearcast._jit import column
        from nearcast.model._kernels.filters import MessageRows

        none = np.zeros(1, np.int64)
        return MessageRows(
            column(self.xs, np.float64),
            column(self.ys, np.float64),
            column(self.term_indptr[:-1], np.int64),
            np.diff(self.term_indptr).astype(np.int32),
            column(self.term_ids, np.int64),
            none if order is None else column(order.indptr[:-1], np.int64),
            np.zeros(1, np.int32) if order is None else np.diff(order.indptr).astype(np.int32),
            np.zeros(1, np.uint16) if order is None else column(order.ranks, np.uint16),
            np.zeros((1, 1), np.int64) if self.codes is None else np.ascontiguousarray(self.codes),
            np.full(3, -1, np.int64),
        )


def _expires_us(messages: Sequence[Message]) -> npt.NDArray[np.int64] | None:
    if all(message.expires_at is None for message in messages):
        return None
    return np.array([to_end_us(message.expires_at) for message in messages], np.int64)


def _codes(
    messages: Sequence[Message], attributes: Attributes, vocabulary: Vocabulary
) -> npt.NDArray[np.int64] | None:
    if not len(attributes):
        return None
    codes = [attributes.encode(message.attributes, vocabulary.hash_key) for message in messages]
    return np.array(codes, np.int64).reshape(len(messages), len(attributes))


def _bodies(messages: Sequence[Message]) -> pa.Array | None:
    if all(message.body is None for message in messages):
        return None
    return pa.array([message.body for message in messages], pa.string())


def check_sizes(messages: Iterable[Message], limits: Limits, attributes: Attributes = NO_ATTRIBUTES) -> None:
    """Raise `InvalidInput` for the first id, place, text or body that is too long, or for a wrong attribute."""
    short_id, short_text = limits.id_bytes // 4, limits.text_bytes // 4  # no character has more than four bytes
    for message in messages:
        id_, text = message.id, message.text
        is_plain = message.place is None and message.body is None and message.attributes is None
        is_short = (
            (isinstance(id_, int) or len(id_) <= short_id) and isinstance(text, str) and len(text) <= short_text
        )
        if is_plain and is_short:  # most messages, which need no bytes counted
            continue
        subject = f"message {message.id!r}"
        limits.check_id(id_, "id", subject=subject)
        limits.check_id(message.place, "place", subject=subject)
        limits.check_text(text, "text", subject=subject)
        limits.check_body(message.body, subject=subject)
        if message.attributes is not None:
            attributes.check(message.attributes, limits, subject=subject)
