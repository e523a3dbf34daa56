"""Naming functions of Python's standard library by the trees of their bodies."""
