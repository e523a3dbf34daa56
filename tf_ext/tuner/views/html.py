"""A plan as one page that needs no network: the drawing, and what to read of each stage."""

from __future__ import annotations

import html
import json
from typing import Any

from tf_ext.tuner.views import wording
from tf_ext.tuner.views.svg import ASSETS

__all__ = ["body", "page"]

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
<noscript><p class="notice">Trials and metrics are shown by a script, which this browser does not run.</p></noscript>
<script type="application/json" id="model">{model}</script>
<script type="module">
{script}
attach(document.body, JSON.parse(document.getElementById("model").textContent));
</script>
</body>
</html>
"""

_CONTROLS = """<div class="bar">
<fieldset><legend>Colour:</legend>
<label><input type="radio" name="colour" value="state" checked> state</label>
<label><input type="radio" name="colour" value="score"> best score of its trials (dark: worst, bright: best)</label>
</fieldset>
<span class="key quiet">State:<i class="done"></i>done<i class="running"></i>running ▶<i class="pending"></i>pending
<i class="failed"></i>failed ✗</span>
</div>"""


def page(model: dict[str, Any]) -> str:
    """The page of a plan.

    Args:
        model: What `export.drawable` returns.

    Returns:
        The text of the page.
    """
    data = {key: value for key, value in model.items() if key != "svg"}
    return _PAGE.format(
        title=html.escape(f"Stage tree of {model['name']}"),
        style=_asset("page.css") + _asset("stage_tree.css"),
        body=body(model),
        # A text of the plan must not end the element that it stands in.
        model=json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        script=_asset("stage_tree.js"),
    )


def body(model: dict[str, Any]) -> str:
    """What stands on the page: totals, the drawing, and room for what is chosen."""
    totals = model["totals"]
    rate = "–" if totals["merge_rate"] is None else f"{totals['merge_rate']:.3f}"  # noqa: RUF001
    facts = [
        ("trials", sum(totals["statuses"].values())),
        ("stages", sum(totals["stages"].values())),
        ("merge rate", rate),
        ("steps requested", totals["requested"]),
        ("steps executed", totals["executed"]),
        ("steps repeated", totals["repeated"]),
        ("training time", wording.duration(totals["seconds"] + totals["repeated_seconds"])),
    ]
    studies = "; ".join(f"{s['name']} ({s['objective']}, {s['direction']})" for s in model["studies"]) or "no study"
    parts = [
        f"<h1>Stage tree of {html.escape(model['name'])}</h1>",
        f'<p class="quiet">{html.escape(studies)}</p>',
        '<ul class="facts">' + "".join(f"<li>{name} <b>{value}</b></li>" for name, value in facts) + "</ul>",
    ]
    if not model["stages"]:
        return "\n".join([*parts, '<p class="notice">Nothing is to be drawn: no stage was asked for yet.</p>'])
    if model["left_out"]:
        parts.append(
            f'<p class="notice">{model["left_out"]} of {sum(totals["stages"].values())} stages are not drawn: those that '
            "fewest trials go through. The totals count all.</p>"
        )
    hint = "Choose a stage by a click or the arrow keys, to read its metrics and trials."
    return "\n".join(
        [*parts, _CONTROLS, f'<div class="drawing">{model["svg"]}</div>',
         f'<section class="details" aria-live="polite"><p class="quiet">{hint}</p></section>']
    )  # fmt: skip


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
