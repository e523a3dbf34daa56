"""The TensorBoard plugin "Stage tree": draws the search plans of `tf_ext.tuner` that lie under the log directory.

TensorBoard finds it by the entry point ``tensorboard_plugins``; there is nothing to call:

    tensorboard --logdir studies
"""

from __future__ import annotations
