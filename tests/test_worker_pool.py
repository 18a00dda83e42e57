"""The threads of an engine take pieces of work, keep their order, and report errors once all have stopped."""

import threading

import pytest

from nearcast.worker_pool import LEAST_S, SERIAL, WorkerPool, WorkMeter


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_results_are_in_the_order_of_the_pieces(n_threads):
    with WorkerPool(n_threads, n_cores=4) as pool:
        assert pool.map(lambda n: n * n, range(100)) == [n * n for n in range(100)]
        assert pool.map(str, []) == []


def test_a_thread_that_is_done_takes_the_pieces_of_one_that_is_not():
    """The first piece waits for all others, which only other threads can do."""
    others = threading.Semaphore(0)
    done_by = {}

    def work(piece):
        done_by[piece] = threading.current_thread()
        if piece == 0:
            for _ in range(9):
                others.acquire()
        else:
            others.release()

    with WorkerPool(2, n_cores=2) as pool:
        pool.map(work, range(10))
    assert len(set(done_by.values())) == 2
    assert sum(thread is done_by[0] for thread in done_by.values()) == 1


@pytest.mark.parametrize("failing", [0, 5, 9])
def test_an_error_is_raised_once_no_thread_works_any_more(failing):
    working = []

    def work(piece):
        working.append(piece)
        try:
            if piece == failing:
                raise ValueError(piece)
        finally:
            working.remove(piece)

    with WorkerPool(3, n_cores=3) as pool:
        with pytest.raises(ValueError, match=str(failing)):
            pool.map(work, range(10))
        assert not working
        assert pool.map(abs, [-1, -2]) == [1, 2], "the pool goes on"


def test_a_pool_may_be_used_by_its_own_work():
    with WorkerPool(2, n_cores=2) as pool:
        assert pool.map(lambda n: sum(pool.map(abs, range(n))), range(5)) == [0, 0, 1, 3, 6]


def test_little_work_is_not_divided():
    with WorkerPool(4, n_cores=4) as pool:
        assert pool.cuts(1000, LEAST_S) == [0, 1000]
        assert pool.cuts(1000, 4 * LEAST_S) == [0, 250, 500, 750, 1000]
        assert len(pool.cuts(1000, 1.0)) == 9, "two pieces per thread, so that the first to be done takes another"
        assert pool.cuts(2, 1.0) == [0, 1, 2]
        assert pool.for_work(LEAST_S) is SERIAL
        assert pool.for_work(1.0) is pool


def test_a_meter_follows_what_rows_take():
    meter = WorkMeter()
    first = meter.estimate(1000)
    assert first > 0.0, "a large first batch is divided, too"
    with meter.measure(0, 1):
        pass
    assert meter.estimate(1000) == first, "no rows tell nothing"
    with meter.measure(1, 2):
        sum(range(100_000))
    assert meter.estimate(1000) > first
    assert meter.estimate(2000) == 2 * meter.estimate(1000)


def test_threads_without_a_core_do_not_run():
    with WorkerPool(8, n_cores=2) as pool:
        assert pool.n_threads == 8, "the number of parts that results are divided into"
        assert len(pool.cuts(1000, 1.0)) == 5
        names = pool.map(lambda _: threading.current_thread().name, range(1000))
        assert len(set(names)) <= 2
