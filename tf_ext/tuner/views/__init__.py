"""Looks at a search plan: as a table and a tree in the terminal, as a page, a picture and JSON. Writes nothing to it.

Example:
    from tf_ext.tuner import views

    view = views.read("studies/digits")
    print(view.totals.merge_rate)
"""

from __future__ import annotations

from tf_ext.tuner.views.model import Trial, View, read
from tf_ext.tuner.views.stages import Stage
from tf_ext.tuner.views.totals import Totals

__all__ = ["Stage", "Totals", "Trial", "View", "read"]
