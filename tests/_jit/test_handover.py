"""One process builds an arena, another continues in the same folder, and the first sees the changes."""

import os
import subprocess
import sys

import numpy as np

from nearcast._jit import Arena, Postings, Table

SECOND_PROCESS = """
import sys
import numpy as np
from nearcast._jit import Arena, Postings, Table

with Arena.attach(sys.argv[1]) as arena:
    table, postings = Table(arena, "terms"), Postings(arena, "lists", chunk_size=4)
    assert len(table) == 10 and table.get(-3) == 30
    sizes = table.arrays.tags.size, postings.arrays.nexts.size

    table.put_many(np.arange(1000, 3000), np.arange(2000))
    table.remove(-3)
    postings.append_many(np.arange(3000) % 300, np.arange(3000))

    grown = table.arrays.tags.size, postings.arrays.nexts.size
    assert all(after > before for before, after in zip(sizes, grown, strict=True))
"""


def test_a_second_process_continues_where_the_first_stopped(tmp_path):
    folder = tmp_path / "arena"
    with Arena(folder) as arena:
        Table(arena, "terms").put_many(-np.arange(10), np.arange(10) * 10)
        Postings(arena, "lists", chunk_size=4).append_many([0, 0, 7], [-1, -2, -3])

    subprocess.run([sys.executable, "-c", SECOND_PROCESS, os.fspath(folder)], check=True, timeout=600)

    with Arena.attach(folder) as arena:
        table = Table(arena, "terms")
        expected = {-key: key * 10 for key in range(10) if key != 3} | {key: key - 1000 for key in range(1000, 3000)}
        assert dict(zip(*(column.tolist() for column in table.items()), strict=True)) == expected

        postings = Postings(arena, "lists", chunk_size=4)
        assert postings[0].tolist() == [-1, -2, *range(0, 3000, 300)]
        assert postings[299].tolist() == list(range(299, 3000, 300))


DIES_WHILE_IT_GROWS = """
import os, sys
import nearcast._jit.table
from nearcast._jit import Arena, Table

nearcast._jit.table._refill = lambda old, new: os._exit(9)
Table(Arena.attach(sys.argv[1]), "terms").put_many(range(100), range(100))
"""


def test_a_table_is_unchanged_if_its_process_dies_while_it_grows(tmp_path):
    Table(Arena(tmp_path / "arena"), "terms").put(-1, 5)
    died = subprocess.run([sys.executable, "-c", DIES_WHILE_IT_GROWS, os.fspath(tmp_path / "arena")], timeout=600)
    assert died.returncode == 9

    table = Table(Arena.attach(tmp_path / "arena"), "terms")
    assert (len(table), table.get(-1), table.get(10), table.get(11)) == (12, 5, 10, -1)
    table.put_many(range(100), range(100))
    assert len(table) == 101
