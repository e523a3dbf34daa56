"""What can go wrong while a recursion is defined; run-time errors are TensorFlow's own (`tf.errors`)."""

from __future__ import annotations

from tf_ext.errors import TfExtError


class SignatureError(TfExtError, TypeError, ValueError):
    """Arguments or results do not fit a SubGraph's declared signature.

    Both a `TypeError` and a `ValueError`, since TensorFlow raises either for such mistakes.
    """


class UndefinedSubGraphError(TfExtError, ValueError):
    """A SubGraph was declared and called, but its body was never defined."""


class UnsupportedOperationError(TfExtError, NotImplementedError, ValueError):
    """A body does something that no executor can do (say, a call inside a `tf.while_loop`)."""


class BatchingError(UnsupportedOperationError):
    """`execution="batched"` was asked for and an operation of the body cannot be run for many calls at once."""
