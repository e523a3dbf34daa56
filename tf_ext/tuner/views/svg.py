"""A plan as a picture: a bar for each stage, as long as its steps."""

from __future__ import annotations

import bisect
import html
import pathlib
from collections.abc import Iterable

from tf_ext.tuner.views import wording
from tf_ext.tuner.views.choosing import Choice
from tf_ext.tuner.views.layout import Box, Layout, lay_out
from tf_ext.tuner.views.model import View

__all__ = ["ASSETS", "drawing", "score_colours"]

ASSETS = pathlib.Path(__file__).parent / "assets"

_WIDTH, _MARGIN, _TOP = 1200.0, 12.0, 34.0
_ROW, _BAR = 26.0, 18.0
_LETTER = 6.3  # width of a letter of the labels, in pixels, about
_SMALLEST = 2.0

# Attributes for programs that know no style sheets; stage_tree.css says the same, and knows dark pages.
_FILLS = {"done": "#2a7f4f", "running": "#1769aa", "pending": "none", "failed": "#b3261e"}
_STROKES = {"done": "#1d5c39", "running": "#0d47a1", "pending": "#8a6d00", "failed": "#7f1912"}
_MARKS = {"running": "▶ ", "failed": "✗ "}

# Viridis: rises in brightness from the worst score to the best, also for those who see few colours.
_SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


def drawing(view: View, choice: Choice, *, interactive: bool = False) -> str:
    """Draws a plan.

    Args:
        view: The plan.
        choice: The stages to draw.
        interactive: For a page that has the style sheet and lets one choose stages; else a picture that stands alone.

    Returns:
        The text of an SVG element.
    """
    layout = lay_out(choice)
    scale = (_WIDTH - 2 * _MARGIN) / layout.width if layout.width else 1.0
    height = _TOP + layout.rows * _ROW + _MARGIN
    colours = score_colours(view)
    role = "group" if interactive else "img"
    label = html.escape(f"Stage tree of {view.directory.name}: {len(choice.stages)} stages, width is {layout.unit}")
    size = f'viewBox="0 0 {_WIDTH:.0f} {height:.0f}" width="{_WIDTH:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="stage-tree" {size} role="{role}" aria-label="{label}" '
        'font-family="system-ui, sans-serif" font-size="11">'
    ]
    if not interactive:
        parts.append(f"<style>{(ASSETS / 'stage_tree.css').read_text(encoding='utf-8')}</style>")
    parts += _axis(layout, scale, height)
    parts += [_link(box, scale) for box in layout.boxes if box.parent_row is not None and box.parent_row != box.row]
    parts += [_stage(view, choice, box, scale, colours.get(box.stage.index), interactive) for box in layout.boxes]
    return "\n".join([*parts, "</svg>"])


def score_colours(view: View) -> dict[int, str]:
    """The colours of the stages that have a score, by its rank: one that is far off does not make all others alike."""
    scored = [(stage.index, stage.score) for stage in view.stages if stage.score is not None]
    ranks = sorted({score for _, score in scored})
    falling = not view.studies or view.studies[0].direction != "max"
    colours = {}
    for index, score in scored:
        part = bisect.bisect_left(ranks, score) / (len(ranks) - 1) if len(ranks) > 1 else 1.0
        colours[index] = _colour(1.0 - part if falling and len(ranks) > 1 else part)
    return colours


def _colour(part: float) -> str:
    at = part * (len(_SCALE) - 1)
    low = min(int(at), len(_SCALE) - 2)
    mixed = (round(a + (b - a) * (at - low)) for a, b in zip(_SCALE[low], _SCALE[low + 1], strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"


def _axis(layout: Layout, scale: float, height: float) -> Iterable[str]:
    if not layout.boxes:
        return
    step = 10.0 ** (len(str(int(layout.width))) - 1)
    step = next(s for s in (step / 5, step / 2, step, step * 2) if layout.width / s <= 10 or s == step * 2)
    step = max(1.0, step)
    yield '<g class="axis" fill="#666" stroke="#bbb" aria-hidden="true">'
    at = 0.0
    while at <= layout.width:
        x = _MARGIN + at * scale
        yield f'<line x1="{x:.1f}" y1="22" x2="{x:.1f}" y2="{height - _MARGIN:.0f}" stroke-width="0.5"/>'
        unit = f" {layout.unit}" if at == 0 else ""
        anchor = ' text-anchor="end"' if x > _WIDTH - 3 * _MARGIN else ""  # the last one would leave the picture
        yield f'<text x="{x:.1f}" y="16" stroke="none"{anchor}>{at:.0f}{unit}</text>'
        at += step
    yield "</g>"


def _middle(row: int) -> float:
    return _TOP + row * _ROW + _BAR / 2


def _link(box: Box, scale: float) -> str:
    x = _MARGIN + box.x * scale
    above = _middle(box.parent_row or 0)
    return f'<path class="link" d="M{x:.1f} {above:.1f}V{_middle(box.row):.1f}" stroke="#888" fill="none"/>'


def _stage(view: View, choice: Choice, box: Box, scale: float, colour: str | None, interactive: bool) -> str:
    stage = box.stage
    x, y = _MARGIN + box.x * scale, _TOP + box.row * _ROW
    width = max(_SMALLEST, box.width * scale - 1)  # a gap tells neighbours apart
    hidden = choice.hidden.get(stage.index, 0)
    text = _MARKS.get(stage.state, "") + wording.what(stage) + (f" (+{hidden} stages)" if hidden else "")
    room = int((width - 8) / _LETTER)
    text = text if len(text) <= room else text[: room - 1] + "…" if room > 3 else ""
    title = html.escape(_title(view, box, hidden))
    names = f"stage {stage.state}" + ("" if colour else " unscored")
    style = f' style="--score:{colour};--ink:{_ink(colour)}"' if colour else ""
    button = f' tabindex="-1" role="button" aria-label="{title}"' if interactive else ""
    dash = ' stroke-dasharray="4 2"' if stage.state == "pending" else ""
    ink = "#666" if stage.state == "pending" else "#fff"
    return (
        f'<g class="{names}" data-stage="{stage.index}"{style}{button}><title>{title}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR:.0f}" rx="3" fill="{_FILLS[stage.state]}" '
        f'stroke="{_STROKES[stage.state]}"{dash}/>'
        + (f'<text x="{x + 5:.1f}" y="{y + 13:.1f}" fill="{ink}">{html.escape(text)}</text>' if text else "")
        + "</g>"
    )


def _title(view: View, box: Box, hidden: int) -> str:
    stage = box.stage
    count = stage.trials[1] - stage.trials[0]
    steps = f"{stage.steps} steps in {wording.duration(stage.seconds)}" if stage.state == "done" else "not trained yet"
    told = [wording.what(stage), wording.epochs(stage), stage.state, steps, f"{count} trial{'' if count == 1 else 's'}"]
    if stage.score is not None:
        told.append(f"best score {wording.number(stage.score)}")
    if hidden:
        told.append(f"{hidden} stages behind it are not drawn")
    return ", ".join(told)
