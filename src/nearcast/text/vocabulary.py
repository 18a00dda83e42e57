"""The vocabulary: document frequencies and the term weights that follow from them.

    terms strings           the known terms, in Arrow's memory
    ids   int64, sorted     their hashes under the key of the engine
    idfs  float64           ln(1 + N / (1 + df)) of each, or as given to `with_weights`

The terms are those of an analyzer, which also divides the texts that the vocabulary encodes. An unknown term has
df 0. The strings are there so that an engine can hash them with its own key; ids and idfs are two flat arrays.
Kernels weigh many terms at once, plain NumPy weighs few, with the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import is_finite, is_whole, require
from nearcast.text.analyzer import SIMPLE, Analyzer, find_analyzer
from nearcast.text.encode import TermRows, encode_column, encode_texts, hash_column, is_worth_a_kernel
from nearcast.text.hashing import DEFAULT_HASH_KEY, HashKey, check_hash_key, term_id
from nearcast.text.tokenizer import Text

Weights = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


class Vocabulary:
    """Term weights, from counted documents or set by hand; the terms are those that `nearcast.analyze` shows.

    >>> vocabulary = Vocabulary(documents=100, frequencies={"coffee": 24, "ramen": 3})
    >>> round(vocabulary.idf("coffee"), 4), round(vocabulary.idf("ramen"), 4), round(vocabulary.idf("zither"), 4)
    (1.6094, 3.2581, 4.6151)
    """

    def __init__(self, documents: int, frequencies: Mapping[str, int]) -> None:
        ok = isinstance(documents, int) and not isinstance(documents, bool) and documents >= 0
        require(ok, "documents", "must be an integer of 0 or more", documents, subject="vocabulary")
        for term, df in frequencies.items():
            ok = isinstance(term, str) and is_whole(term) and isinstance(df, int) and 0 <= df <= documents
            require(ok, "frequencies", "must map terms to integers between 0 and documents", {term: df})
        dfs = np.fromiter(frequencies.values(), dtype=np.float64, count=len(frequencies))
        self._set(_strings(frequencies), np.log(1.0 + documents / (1.0 + dfs)), log(1.0 + documents))

    def _set(self, terms: pa.Array, idfs: Weights, default: float, hash_key: HashKey = DEFAULT_HASH_KEY) -> None:
        self.terms, self._idfs_of_terms = terms, idfs
        self.default = float(default)
        self.hash_key = hash_key
        """The key under which terms are hashed."""
        self.analyzer = SIMPLE
        """The analyzer of the texts that are encoded."""
        self._counted_with: Analyzer | None = None
        self._sample: list[Text] | None = None

    @cached_property
    def _by_id(self) -> tuple[Ids, Weights]:
        ids = hash_column(self.terms, self.hash_key)
        order = np.argsort(ids, kind="stable")
        return ids[order], self._idfs_of_terms[order]

    @property
    def ids(self) -> Ids:
        """The ids of the known terms, sorted."""
        return self._by_id[0]

    @property
    def idfs(self) -> Weights:
        """The weight of each id."""
        return self._by_id[1]

    def with_key(self, hash_key: HashKey) -> Vocabulary:
        """Return the vocabulary with terms hashed under another key.

        >>> vocabulary = Vocabulary.with_weights({"jazz": 2.0})
        >>> other = vocabulary.with_key(bytes(16))
        >>> other.idf("jazz"), other.term_id("jazz") == vocabulary.term_id("jazz")
        (2.0, False)
        """
        if hash_key == self.hash_key:
            return self
        check_hash_key(hash_key, subject="vocabulary")
        return self._changed(hash_key=hash_key)

    def with_analyzer(self, analyzer: str) -> Vocabulary:
        """Return the vocabulary for texts of an analyzer; a sample without an analyzer of its own is counted now.

        >>> counted = Vocabulary.from_texts(["running", "runs"]).with_analyzer("english")
        >>> counted.idf("run") == log(1 + 2 / (1 + 2)), len(counted)
        (True, 1)
        """
        found = find_analyzer(analyzer, subject="vocabulary")
        if self._counted_with is not None:
            rule = f"must be counted with the analyzer {analyzer!r} where texts are analyzed with it"
            require(self._counted_with == found, "vocabulary", rule, self._counted_with.name)
        if self._sample is not None:
            counted = self if found == SIMPLE else self.from_texts(self._sample, analyzer=analyzer)
            return counted._changed(hash_key=self.hash_key, _sample=None, _counted_with=found)
        return self if self.analyzer == found else self._changed(analyzer=found)

    def _changed(self, **attributes: Any) -> Vocabulary:
        """Return a copy with other attributes; what is derived from the key is derived again if it differs."""
        made = type(self).__new__(type(self))
        derived = ("_by_id", "_directory") if attributes.get("hash_key", self.hash_key) != self.hash_key else ()
        made.__dict__ |= {name: value for name, value in self.__dict__.items() if name not in derived} | attributes
        return made

    def term_id(self, term: str) -> int:
        """Return the id of a term."""
        return term_id(term, self.hash_key)

    def encode(self, texts: Sequence[Text] | pa.Array, *, ordered: bool = False) -> TermRows:
        """Return texts as rows of term ids and counts; `ordered` adds the order of the terms."""
        if not isinstance(texts, pa.Array):
            if not (is_worth_a_kernel(len(texts)) and all(isinstance(text, str) for text in texts)):
                return encode_texts(texts, self.hash_key, analyzer=self.analyzer, ordered=ordered)
            texts = pa.array(texts, pa.string())
        return encode_column(texts, self.hash_key, analyzer=self.analyzer, ordered=ordered)

    @classmethod
    def from_texts(cls, texts: Iterable[Text], *, analyzer: str | None = None) -> Vocabulary:
        """Count a sample of texts, by default with the analyzer of the engine that takes the vocabulary.

        Without an analyzer the vocabulary holds on to the texts; the vocabulary of an engine does not.

        >>> Vocabulary.from_texts(["a b b", "b c"]).idf("b") == log(1 + 2 / (1 + 2))
        True
        """
        counted_with = None if analyzer is None else find_analyzer(analyzer, subject="vocabulary")
        sample = list(texts) if counted_with is None else None
        frequencies: Counter[str] = Counter()
        documents, terms_of = 0, (counted_with or SIMPLE).terms
        for text in texts if sample is None else sample:
            frequencies.update(set(terms_of(text)))
            documents += 1
        made = cls(documents, frequencies)
        return made._changed(_sample=sample, _counted_with=counted_with, analyzer=counted_with or SIMPLE)

    @classmethod
    def with_weights(cls, weights: Mapping[str, float]) -> Vocabulary:
        """Set idf directly. A term that is not listed has the greatest of them, or 1 if none is listed.

        >>> Vocabulary.with_weights({"nike": 0.3, "shoes": 0.1}).idf("adidas")
        0.3
        """
        for term, weight in weights.items():
            ok = isinstance(term, str) and is_whole(term) and is_finite(weight) and weight >= 0
            require(ok, "weights", "must map terms to finite numbers of 0 or more", {term: weight})
        made = cls.__new__(cls)
        values = np.fromiter((float(w) for w in weights.values()), dtype=np.float64, count=len(weights))
        made._set(_strings(weights), values, values.max() if len(values) else 1.0)
        return made

    def __len__(self) -> int:
        return len(self.terms)

    def idf(self, term: str) -> float:
        """Return the weight of one term."""
        return float(self.idfs_of(np.array([self.term_id(term)], dtype=np.int64))[0])

    def idfs_of(self, ids: Ids) -> Weights:
        """Return the weights of many terms, given by id."""
        if not len(self.ids):
            return np.full(len(ids), self.default)
        if is_worth_a_kernel(len(ids)):
            from nearcast._jit import column
            from nearcast.text._kernels.weigh import find_weights

            found = np.empty(len(ids))
            directory, bits = self._directory
            find_weights(directory, bits, self.ids, self.idfs, self.default, column(ids, np.int64), found)
            return found
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, self.idfs[at], self.default)

    @cached_property
    def _directory(self) -> tuple[npt.NDArray[np.int32], int]:
        """Where the terms with the same leading bits begin, and the number of these bits."""
        bits = max(1, len(self.ids).bit_length() - 2)
        leading = (self.ids.view(np.uint64) ^ np.uint64(1 << 63)) >> np.uint64(64 - bits)
        return np.searchsorted(leading, np.arange((1 << bits) + 1, dtype=np.uint64)).astype(np.int32), bits

    def weigh(self, ids: Ids, counts: npt.NDArray[np.int32], indptr: Ids) -> tuple[Weights, Weights]:
        """Return, for rows of (term, count) pairs, each pair's idf and its tf-idf in a vector of length 1.

        Rows are summed term by term in the order given, so that the same terms always give the same bits. A row whose
        weights are all 0 has a vector of zeros.
        """
        idfs = self.idfs_of(ids)
        return idfs, to_units(idfs, counts, indptr)

    def state(self) -> dict[str, Any]:
        """Return the arguments of `from_state` for this vocabulary."""
        held = {"terms": self.terms, "idfs": self._idfs_of_terms}
        return held | {"default": self.default, "hash_key": self.hash_key}

    @classmethod
    def from_state(cls, *, terms: pa.Array, idfs: Weights, default: float, hash_key: HashKey) -> Vocabulary:
        """Return the vocabulary of a state, bit for bit."""
        made = cls.__new__(cls)
        made._set(terms, idfs, default, hash_key)
        return made


def _strings(terms: Iterable[str]) -> pa.Array:
    return pa.array(list(terms), pa.string())


def to_units(idfs: Weights, counts: npt.NDArray[np.int32], indptr: Ids) -> Weights:
    """Return idf times count of each term, each row scaled to length 1; see `Vocabulary.weigh`.

    >>> to_units(np.array([3.0, 2.0]), np.array([1, 2], np.int32), np.array([0, 2])).tolist()
    [0.6, 0.8]
    """
    if is_worth_a_kernel(len(idfs)):
        from nearcast._jit import column
        from nearcast.text._kernels.weigh import scale_rows

        units = np.empty(len(idfs))
        scale_rows(column(idfs, np.float64), column(counts, np.int32), column(indptr, np.int64), units)
        return units
    units = idfs * counts
    squares = add_up(units * units, indptr)
    lengths = np.sqrt(squares)
    lengths[squares == 0.0] = 1.0
    units /= np.repeat(lengths, np.diff(indptr))
    return units


def add_up(values: Weights, indptr: Ids) -> Weights:
    """Return the sum of each row, added up in the given order, so that equal rows give equal bits.

    >>> add_up(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    totals = np.zeros(len(indptr) - 1)
    if is_worth_a_kernel(len(values)):
        from nearcast._jit import column
        from nearcast.text._kernels.weigh import add_rows

        add_rows(column(values, np.float64), column(indptr, np.int64), totals)
        return totals
    starts, lengths = indptr[:-1], np.diff(indptr)
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        totals[rows] += values[starts[rows] + place]
    return totals
