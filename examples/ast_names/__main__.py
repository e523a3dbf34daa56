"""Trains the example: `python -m examples.ast_names --seconds 40`."""

from __future__ import annotations

import time

_START = time.monotonic()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import rich.console  # noqa: E402
import rich.syntax  # noqa: E402
from absl import app, flags  # noqa: E402

from examples.ast_names import data as datasets  # noqa: E402
from examples.ast_names import model as models  # noqa: E402

_SECONDS = flags.DEFINE_float("seconds", 180.0, "How long the program may take, its start included.", lower_bound=20.0)
_SEED = flags.DEFINE_integer("seed", 0, "Of the weights, of the dropout and of the split into modules.")

# What comes after the training: measuring accuracy and leaving.
_RESERVE = 7.0


def _show(console: rich.console.Console, data: datasets.Data, probabilities: np.ndarray) -> None:
    """Prints a function that was named right and is worth reading."""
    right = probabilities.argmax(1) == data.test.labels
    lengths = np.array([function.source.count("\n") for function in data.test.functions])
    worth = right & (lengths >= 3) & (lengths <= 12) & (data.test.labels != np.bincount(data.train.labels).argmax())
    shown = int(np.where(worth, probabilities.max(1), -1).argmax())
    function, best = data.test.functions[shown], probabilities[shown].argsort()[::-1][:3]
    hidden = function.source.replace(function.name, "?" * len(function.name))
    console.print(f"\nA function of [bold]{function.module}[/bold], a module that the training did not see:\n")
    console.print(rich.syntax.Syntax(hidden, "python", theme="ansi_dark", background_color="default"))
    guesses = ", ".join(f"[bold]{data.names[i]}[/bold] {probabilities[shown][i]:.0%}" for i in best)
    console.print(f"\nGuessed: {guesses}. Its name is [bold]{function.name}[/bold].")


def main(_: list[str]) -> None:
    """Reads the standard library, trains, and tells how well it went."""
    console = rich.console.Console()
    keras.utils.set_random_seed(_SEED.value)
    with console.status("reading the standard library"):
        data = datasets.load(seed=_SEED.value)
    console.print(
        f"{len(data.train.labels)} functions ({data.train.forest.num_nodes} nodes) to learn from, "
        f"{len(data.test.labels)} of other modules for the test; {len(data.names)} names: {', '.join(data.names)}."
    )
    model = models.build(data)
    models.train(model, data, max(1.0, _SECONDS.value - _RESERVE - (time.monotonic() - _START)))
    probabilities = models.predict(model, data)
    accuracy = float((probabilities.argmax(1) == data.test.labels).mean())
    console.print(
        f"Accuracy on modules held out: [bold]{accuracy:.1%}[/bold], "
        f"against {data.majority:.1%} for always guessing the commonest name."
    )
    _show(console, data, probabilities)
    console.print(f"\n{time.monotonic() - _START:.0f} s.")


if __name__ == "__main__":
    app.run(main)
