"""The numbered bars of `tf_ext.lite`."""

from benchmarks.ledger import Task
from benchmarks.lite import bars_exact, bars_memory, bars_simulated, bars_time


def tasks(bar: int | None = None) -> list[Task]:
    """Returns the tasks of one bar, or of all."""
    everything = [
        *bars_exact.exactness(),
        *bars_time.overhead(),
        *bars_time.frames(),
        *bars_simulated.simulated(),
        *bars_simulated.decisions(),
        *bars_time.requests(),
        *bars_memory.memory(),
    ]
    return [task for task in everything if bar in (None, task.bar)]
