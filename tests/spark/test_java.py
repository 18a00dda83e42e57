"""A Java runtime for Spark is found on the machine or in the wheel."""

import os
import subprocess
import sys

import pytest

from nearcast.errors import StateError
from nearcast.spark import java


def fake_java(folder, version):
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    return folder


def test_the_java_of_the_machine_comes_first(tmp_path, monkeypatch):
    home = fake_java(tmp_path / "jdk", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java() == home


def test_java_on_the_path_is_found(tmp_path, monkeypatch):
    home = fake_java(tmp_path / "jdk", "22")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert java.find_java() == home


def test_a_java_that_is_too_old_is_skipped_in_favour_of_the_wheel(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "1.8.0_392")))
    monkeypatch.setenv("PATH", "/nowhere")
    home = java.find_java()
    assert java.java_version(home) == 21


def test_the_wrapper_drops_the_flag_that_the_wheels_runtime_refuses(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    home = java.find_java()
    ran = subprocess.run(
        [home / "bin" / "java", java.DROPPED, "-Dsome.key=two words", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "some.key = two words" in ran.stderr


def test_without_java_the_error_lists_what_was_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "11.0.1")))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "_wheel_java", lambda: None)
    with pytest.raises(StateError, match=r"Java 17 or newer is needed: .* is Java 11"):
        java.find_java()


def test_the_command_line_prints_the_runtime():
    ran = subprocess.run([sys.executable, "-m", "nearcast.spark.java"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("Java ")
