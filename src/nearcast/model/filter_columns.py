"""Filter programs of a batch of subscriptions, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model.filter_program import Predicate, all_of_tests, compile_test, has_phrase
from nearcast.ragged import starts
from nearcast.space.region_columns import RegionColumns

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FilterPrograms:
    """The programs of those rows of a batch that have one."""

    rows: Longs
    """int64 (n,): the rows, ascending."""
    indptr: Longs
    """int64 (n + 1,): where the words of each begin."""
    words: Longs
    regions: RegionColumns
    """The regions that the programs test, one row each."""
    n_with_phrases: int
    """The number of programs that test the order of terms."""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, tests_of_rows: Mapping[int, Mapping[str, Predicate]], regions: RegionColumns) -> FilterPrograms:
        """Compile the tests of some rows, by field; `regions` has all rows. Rows without a test are left out."""
        kept, programs, with_region, n_with_phrases = [], [], [], 0
        for row, tests in tests_of_rows.items():
            if (test := all_of_tests(tests.values())) is not None:
                kept.append(row)
                programs.append(compile_test(test))
                with_region.append(row if "region" in tests else -1)
                n_with_phrases += has_phrase(test)
        return cls(
            np.array(kept, np.int64),
            starts([len(words) for words in programs]),
            np.array([word for words in programs for word in words], np.int64),
            regions.take(with_region),
            n_with_phrases,
        )
