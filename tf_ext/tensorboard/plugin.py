"""The plugin: its routes, and the JSON of a plan."""

from __future__ import annotations

import hashlib
import json
import pathlib
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import werkzeug.wrappers
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin

from tf_ext.errors import TfExtError
from tf_ext.tensorboard.finder import PlanFinder

# The tuner is imported by the first request for a plan: TensorBoard loads all installed plugins at every start.

__all__ = ["StageTreePlugin"]

_ASSETS = pathlib.Path(__file__).parent / "assets"
_MOST_STAGES = 2000
# A worker that dies changes no file: what was drawn is not believed for longer.
_BELIEVED_SECONDS = 20.0
_REMEMBERED = 16

Request = werkzeug.wrappers.Request
Handler = Callable[[Request], Any]


class StageTreePlugin(base_plugin.TBPlugin):
    """Draws the stage trees of the plans under the log directory."""

    plugin_name = "stage_tree"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._finder = PlanFinder(context.logdir)
        self._lock = threading.Lock()
        self._drawn: dict[tuple[str, str | None], tuple[object, float, dict[str, Any]]] = {}

    def get_plugin_apps(self) -> dict[str, Any]:
        """The routes below ``data/plugin/stage_tree``."""
        routes = {"/index.js": self._module, "/style.css": self._style, "/plans": self._plans, "/tree": self._tree}
        return {path: werkzeug.wrappers.Request.application(_guarded(handler)) for path, handler in routes.items()}

    def is_active(self) -> bool:
        """Whether there is a plan."""
        return bool(self._finder.plans())

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """What TensorBoard's page loads."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Stage tree")

    def _module(self, request: Request) -> Any:
        from tf_ext.tuner.views.svg import ASSETS

        # One module, so that the plugin loads nothing by a path of its own.
        parts = (ASSETS / "stage_tree.js", _ASSETS / "plugin.js")
        text = "\n".join(path.read_text(encoding="utf-8") for path in parts)
        return http_util.Respond(request, text, "application/javascript")

    def _style(self, request: Request) -> Any:
        from tf_ext.tuner.views.svg import ASSETS

        text = "".join((ASSETS / name).read_text(encoding="utf-8") for name in ("page.css", "stage_tree.css"))
        return http_util.Respond(request, text, "text/css")

    def _plans(self, request: Request) -> Any:
        return _json(request, {"plans": sorted(self._finder.plans())})

    def _tree(self, request: Request) -> Any:
        name = request.args.get("plan", "")
        directory = self._finder.directory(name)
        if directory is None:
            return _json(request, {"error": "There is no such plan under the log directory."}, 404)
        drawn = self._draw(directory, name, request.args.get("study") or None)
        if request.args.get("have") == drawn["fingerprint"]:
            return _json(request, {"fingerprint": drawn["fingerprint"], "unchanged": True})
        return _json(request, drawn)

    def _draw(self, directory: pathlib.Path, name: str, study: str | None) -> dict[str, Any]:
        with self._lock:  # several pages that wait for one plan read it once
            signature = _signature(directory)
            known = self._drawn.get((name, study))
            if known is not None and known[0] == signature and time.monotonic() - known[1] < _BELIEVED_SECONDS:
                return known[2]
            drawn = _drawing(directory, study)
            self._drawn[name, study] = (signature, time.monotonic(), drawn)
            while len(self._drawn) > _REMEMBERED:
                del self._drawn[next(iter(self._drawn))]
            return drawn


def _drawing(directory: pathlib.Path, study: str | None) -> dict[str, Any]:
    from tf_ext.tuner.views import choosing, export, html, model

    view = model.read(directory, study)
    drawable = export.drawable(view, choosing.most_shared(view, _MOST_STAGES))
    body = html.body(drawable)
    data = {key: value for key, value in drawable.items() if key != "svg"}
    text = json.dumps([body, data], ensure_ascii=False)
    return {"fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16], "body": body, "model": data}


def _signature(directory: pathlib.Path) -> tuple[Any, ...]:
    """What changes when somebody writes to a plan, comes or goes."""
    seen: list[Any] = []
    for name in ("plan.sqlite", "plan.sqlite-wal", "owners"):
        try:
            status = (directory / name).stat()
        except OSError:
            seen.append(None)
        else:
            seen.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(seen)


def _guarded(handler: Handler) -> Handler:
    """What is wrong with a plan is told on the page; other methods than GET have nothing to do here."""

    def handle(request: Request) -> Any:
        if request.method not in ("GET", "HEAD"):
            return _json(request, {"error": "expected GET"}, 405)
        try:
            return handler(request)
        except (TfExtError, sqlite3.Error, OSError) as error:
            return _json(request, {"error": str(error)}, 500)

    return handle


def _json(request: Request, data: dict[str, Any], code: int = 200) -> Any:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    return http_util.Respond(request, text, "application/json; charset=utf-8", code=code)
