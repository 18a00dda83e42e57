"""Experiments: questions that are answered by measuring, and the pages of docs/benchmarks.

    questions ── python -m experiments ──> data/*.json ── python -m experiments.pages ──> docs/benchmarks, README.md

Measuring never draws and never writes prose; generating never measures. `registry` lists the questions.
"""
