"""Runs the command as ``python -m tf_ext.cli``."""

from __future__ import annotations

from tf_ext.cli._main import main

if __name__ == "__main__":
    main()
