"""Tokens to integers and back, for the values and the labels of tree nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

NO_TOKEN = "<none>"
UNKNOWN = "<unk>"


class Vocabulary:
    """A list of tokens, each known by its place in the list.

    Two places are taken: 0 is `<none>`, the value of a node that carries no token (the inner nodes of a treebank tree),
    and 1 is `<unk>`, what a token that is not in the list becomes. A new vocabulary grows with every token it is asked
    for; after `freeze()` it stays as it is, so that a test set is read with the tokens of the training set.

    Example:
        >>> vocabulary = Vocabulary(["good"])
        >>> vocabulary["good"], vocabulary["movie"]
        (2, 3)
        >>> vocabulary.freeze()["unseen"]
        1
        >>> vocabulary.tokens
        ['<none>', '<unk>', 'good', 'movie']

    Args:
        tokens: what the vocabulary holds from the start, in the order of their integers; `<none>` and `<unk>` are put
            in front where they are missing, so that `Vocabulary(other.tokens)` is a copy.
    """

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        self._ids: dict[str, int] = {NO_TOKEN: 0, UNKNOWN: 1}
        self._frozen = False
        for token in tokens:
            self._ids.setdefault(token, len(self._ids))

    @classmethod
    def from_counts(cls, tokens: Iterable[str], *, min_count: int = 1, max_tokens: int | None = None) -> Vocabulary:
        """A frozen vocabulary of the tokens seen often enough, the most frequent first.

        Example:
            >>> Vocabulary.from_counts(["a", "b", "b"], min_count=2).tokens
            ['<none>', '<unk>', 'b']

        Args:
            tokens: every occurrence of every token.
            min_count: how often a token must occur to be kept.
            max_tokens: how many tokens are kept at most, `<none>` and `<unk>` not counted; None for all.

        Returns:
            The vocabulary; tokens that occur equally often are in alphabetical order.
        """
        counts = Counter(tokens)
        kept = sorted((t for t, n in counts.items() if n >= min_count), key=lambda t: (-counts[t], t))
        return cls(kept[:max_tokens]).freeze()

    @property
    def tokens(self) -> list[str]:
        """All tokens, each at the place that is its integer."""
        return list(self._ids)

    @property
    def frozen(self) -> bool:
        """Whether an unknown token becomes `<unk>` rather than a new entry."""
        return self._frozen

    def freeze(self) -> Vocabulary:
        """Stops the growth, and returns the vocabulary itself."""
        self._frozen = True
        return self

    def __getitem__(self, token: str) -> int:
        found = self._ids.get(token)
        if found is not None:
            return found
        if self._frozen:
            return self._ids[UNKNOWN]
        self._ids[token] = len(self._ids)
        return self._ids[token]

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens, {'frozen' if self._frozen else 'growing'})"


def lookup(vocabulary: Vocabulary | Mapping[str, int], token: str, where: str) -> int:
    """The integer of a token in a `Vocabulary` or a plain dict.

    Example:
        >>> lookup({"good": 5, "<unk>": 1}, "bad", "line 1")
        1

    Args:
        vocabulary: where to look; a dict gives its entry `<unk>`, if it has one, for a token that it lacks.
        token: what to look for.
        where: the place in the user's input, for the error.

    Returns:
        The token's integer.

    Raises:
        ValueError: if a dict has neither the token nor `<unk>`.
    """
    if isinstance(vocabulary, Vocabulary):
        return vocabulary[token]
    if token in vocabulary:
        return int(vocabulary[token])
    if UNKNOWN in vocabulary:
        return int(vocabulary[UNKNOWN])
    raise ValueError(
        f"{where}: expected a token of the vocabulary ({len(vocabulary)} entries), got {token!r}. "
        f"Add it, add an entry {UNKNOWN!r}, or use tf_ext.recursion.Vocabulary()."
    )
