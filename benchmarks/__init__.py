"""Measurements: ``python -m benchmarks --help``."""
