"""The exceptions that several parts of the suite raise; a part's own ones derive from `TfExtError`.

Every message says what was expected, what came, and what to do.
"""

from __future__ import annotations

__all__ = ["OperatorLibraryError", "TfExtError"]


class TfExtError(Exception):
    """Base of all exceptions that are this suite's own."""

    # AutoGraph raises an error anew, with the user's lines, where it can tell that the type takes a message alone.
    __init__ = Exception.__init__


class OperatorLibraryError(TfExtError, ImportError):
    """The operators cannot be had: TensorFlow or the operator library is absent, or the two do not fit.

    Also an `ImportError`, since it is raised while a package that needs the operators is being imported:

        try:
            import tf_ext.recursion
        except ImportError as error:
            print(error)  # what was expected, what was found, the command that repairs it
    """
