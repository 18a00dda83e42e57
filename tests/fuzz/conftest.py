"""Repeat every property with new examples for as long as `make fuzz` allows, and show the progress.

One round of examples is too short to reach far, and one of millions could not be stopped in time: so rounds follow
each other, each with a seed of its own.
"""

import time

import pytest

import effort

_REPORT_EVERY_S = 20.0
_cpu_seconds = {}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not effort.FUZZ_SECONDS or not getattr(pyfuncitem.obj, "is_hypothesis_test", False):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    start, reported, rounds = time.process_time(), time.monotonic(), 0
    try:
        while (used := time.process_time() - start) < effort.FUZZ_SECONDS:
            if time.monotonic() - reported >= _REPORT_EVERY_S:
                reported = time.monotonic()
                _report(pyfuncitem, f"round {rounds}, {used:.0f} of {effort.FUZZ_SECONDS:.0f} s of CPU")
            pyfuncitem.obj(**arguments)
            rounds += 1
    finally:
        used = time.process_time() - start
        _cpu_seconds[pyfuncitem.path.name] = _cpu_seconds.get(pyfuncitem.path.name, 0.0) + used
        most = pyfuncitem.obj._hypothesis_internal_use_settings.max_examples
        _report(pyfuncitem, f"{rounds} rounds of up to {most} examples, {used:.0f} s of CPU")
    return True


def _report(item, text):
    terminal = item.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        with item.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
            terminal.write_line(f"  {item.path.name} {item.originalname}: {text}")
            terminal.flush()


def pytest_terminal_summary(terminalreporter):
    for name, seconds in _cpu_seconds.items():
        terminalreporter.write_line(f"fuzzed {name} for {seconds:.0f} s of CPU")
