import ast
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tf_ext
from tf_ext.recursion.converters import from_nested, from_parents, to_nested
from tf_ext.recursion.forest import Forest, concatenate
from tf_ext.recursion.ordering import level_order
from tf_ext.recursion.sexpr import from_sexpr, to_sexpr
from tf_ext.recursion.syntax import ast_vocabulary, from_ast
from tf_ext.recursion.vocabulary import Vocabulary

DEEP = 100_000

values = st.integers(-(2**31), 2**31 - 1)
nested_trees = st.recursive(
    values, lambda tree: st.tuples(values, st.lists(tree, min_size=1, max_size=4)), max_leaves=20
)
tokens = st.text(st.characters(blacklist_characters=" \t\r\n\f\v", blacklist_categories=["Cs"]), min_size=1, max_size=6)


@st.composite
def parent_arrays(draw):
    """A random tree whose rows are in random order."""
    size = draw(st.integers(1, 30))
    parents = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, size)]
    place = draw(st.permutations(range(size)))
    shuffled = np.empty(size, np.int64)
    for node, parent in enumerate(parents):
        shuffled[place[node]] = -1 if parent < 0 else place[parent]
    return shuffled


def _nested_by_recursion(parents: Any, values: Any, node: int) -> Any:
    children = [_nested_by_recursion(parents, values, int(child)) for child in np.flatnonzero(parents == node)]
    return (values[node], children) if children else values[node]


@given(st.lists(nested_trees, max_size=5))
def test_nested_comes_back_as_it_went(trees):
    assert to_nested(from_nested(trees)) == trees


@given(st.lists(parent_arrays(), max_size=4))
def test_parents_in_any_order_give_the_tree_they_describe(trees):
    rows = [list(range(len(tree))) for tree in trees]
    forest = from_parents(trees, rows)
    expected = [
        _nested_by_recursion(tree, row, int(np.flatnonzero(tree == -1)[0]))
        for tree, row in zip(trees, rows, strict=True)
    ]
    assert to_nested(forest) == expected
    assert forest.source.tolist() == forest.values.tolist()


@given(st.lists(parent_arrays(), min_size=1, max_size=4))
def test_forest_order(trees):
    forest = from_parents(trees)
    parents = forest.parents
    tree_index = np.repeat(np.arange(len(forest)), forest.sizes)
    inner = np.delete(np.arange(forest.num_nodes), forest.roots)
    assert np.all(parents[forest.roots] == -1)
    assert np.all(parents[inner] > inner)
    assert np.all(tree_index[parents[inner]] == tree_index[inner])
    assert np.all(np.diff(parents[inner]) >= 0)
    assert np.all(np.bincount(parents[inner], minlength=forest.num_nodes) == forest.arity)
    assert np.all(forest.depth[inner] == forest.depth[parents[inner]] + 1)
    # What was made of a forest is in its order already.
    assert np.array_equal(level_order(parents, forest.node_splits), np.arange(forest.num_nodes))


@given(st.lists(nested_trees, min_size=1, max_size=5), st.data())
def test_a_forest_is_a_sequence(trees, data):
    forest = from_nested(trees)
    index = data.draw(st.lists(st.integers(-len(trees), len(trees) - 1), max_size=6))
    assert to_nested(forest[index]) == [trees[i] for i in index]
    assert to_nested(forest[1:]) == trees[1:]
    assert [to_nested(tree)[0] for tree in forest] == trees
    assert concatenate(list(forest)) == forest
    assert to_nested(forest + forest) == trees + trees


@settings(max_examples=50)
@given(st.lists(nested_trees, min_size=1, max_size=4), st.lists(tokens, min_size=1, max_size=5, unique=True), st.data())
def test_sexpr_comes_back_as_it_went(trees, words, data):
    vocabulary = Vocabulary(words)
    shape = from_nested(trees)
    leaf_values = data.draw(
        st.lists(st.integers(2, len(vocabulary) - 1), min_size=shape.num_nodes, max_size=shape.num_nodes)
    )
    forest = Forest(
        arity=shape.arity,
        values=np.where(shape.is_leaf, leaf_values, 0).astype(np.int32),
        node_splits=shape.node_splits,
        labels=shape.values,
        source=shape.source,
    )
    lines = to_sexpr(forest, vocabulary=vocabulary)
    # A token that is itself an escape is read as the bracket that it stands for.
    again = Vocabulary()
    read = from_sexpr(lines, vocabulary=again)
    assert to_sexpr(read, vocabulary=again) == lines
    assert np.array_equal(read.required_labels, forest.required_labels)
    assert np.array_equal(read.arity, forest.arity)


def test_sexpr_reads_a_treebank():
    vocabulary = Vocabulary()
    text = "(3 (2 It) (4 (2 -LRB-1\u00a01\\/2-RRB-) (2 rocks)))\n\n  (1  ( 0 bad ) (1 film))\r\n"
    forest = from_sexpr(text, vocabulary=vocabulary)
    assert vocabulary.tokens[2:] == ["It", "(1\u00a01\\/2)", "rocks", "bad", "film"]
    assert forest.root_labels.tolist() == [3, 1]
    assert forest.required_labels.tolist() == [2, 2, 2, 4, 3, 0, 1, 1]
    assert forest.values.tolist() == [3, 4, 2, 0, 0, 5, 6, 0]
    assert forest.source.tolist() == [3, 4, 1, 2, 0, 1, 2, 0]
    assert to_sexpr(forest, vocabulary=vocabulary)[1] == "(1 (0 bad) (1 film))"


def test_sexpr_with_words_for_labels_and_plain_dicts():
    labels, words = Vocabulary(), {"the": 5, "dog": 6, "<unk>": 7}
    forest = from_sexpr(["(NP (DT the) (NN dog) (NN cat))"], vocabulary=words, label_vocabulary=labels, inner=9)
    assert forest.values.tolist() == [5, 6, 7, 9]
    assert [labels.tokens[label] for label in forest.required_labels] == ["DT", "NN", "NN", "NP"]
    assert to_sexpr(forest, vocabulary=words, label_vocabulary=labels) == ["(NP (DT the) (NN dog) (NN <unk>))"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("good", r"line 2, column 1: expected '\(', got 'good'"),
        ("(3 (2 good)", r"line 2, column 12: expected '\(' or '\)', got the end of the line"),
        ("(3 good))", r"line 2, column 9: expected the end of the line \(one tree a line\), got '\)'"),
        ("(3 good) (2 bad)", r"line 2, column 10: expected the end of the line"),
        ("(3)", r"line 2, column 3: expected a token or '\(', got '\)'"),
        ("()", r"line 2, column 2: expected a label, got '\)'"),
        ("(3 good movie)", r"line 2, column 9: expected '\)', got 'movie'"),
        ("(3 (2 good) movie)", r"line 2, column 13: expected '\(' or '\)', got 'movie'"),
        ("(3 good (2 movie))", r"line 2, column 9: expected '\)', got '\('"),
        ("((2 good))", r"line 2, column 2: expected a label, got '\('"),
        ("(NP good)", r"line 2, column 2: expected an integer label, got 'NP'.*label_vocabulary"),
        ("(3", r"line 2, column 3: expected a token or '\(', got the end of the line"),
        ("(3 unheard)", r"line 2, column 4: expected a token of the vocabulary \(2 entries\), got 'unheard'"),
    ],
)
def test_malformed_sexpr_names_the_place(line, message):
    with pytest.raises(ValueError, match=message):
        from_sexpr(["(1 good)", line], vocabulary={"good": 2, "movie": 3})


def test_what_sexpr_cannot_hold():
    vocabulary = Vocabulary(["two words"])
    with pytest.raises(ValueError, match="expected trees with labels"):
        to_sexpr(from_nested([2]), vocabulary=vocabulary)
    with pytest.raises(ValueError, match="node 0: expected a token without white space, got 'two words'"):
        to_sexpr(from_parents([[-1]], [[2]], labels=[[0]]), vocabulary=vocabulary)
    with pytest.raises(ValueError, match=r"node 0: expected an integer of the vocabulary \(3 entries\), got 8"):
        to_sexpr(from_parents([[-1]], [[8]], labels=[[0]]), vocabulary=vocabulary)


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        (
            [-1, 2, 3, 1],
            r"tree 1: expected every node to lead to the root, got a cycle of parents: \d -> \d -> \d -> \d\.",
        ),
        ([0], r"tree 1: .*cycle of parents: 0 -> 0"),
        ([1, 0], r"tree 1: .*cycle of parents: [01] -> [01] -> [01]"),
        ([-1, 0, -1], r"tree 1: expected one root \(parent -1\), got 2, the first at rows 0 and 2"),
        ([-1, 5], r"tree 1: expected parents from -1 to 1, got parents\[1\] = 5"),
        ([-1, -2], r"tree 1: expected parents from -1 to 1, got parents\[1\] = -2"),
        ([], r"tree 1: expected a vector of at least one integer parent"),
        ([-1.0], r"tree 1: expected a vector of at least one integer parent, got float64"),
        ([[-1]], r"tree 1: expected a vector of at least one integer parent, got int64 \[1, 1\]"),
    ],
)
def test_parents_that_are_no_tree(parents, message):
    with pytest.raises(ValueError, match=message):
        from_parents([[-1, 0], parents])


def test_a_long_cycle_is_shortened():
    with pytest.raises(ValueError, match=r"0 -> .* -> \.\.\."):
        from_parents([np.roll(np.arange(1000), 1)])


def test_per_node_arrays_that_do_not_fit():
    with pytest.raises(ValueError, match=r"values: expected one array for each of 1 trees, got 2"):
        from_parents([[-1]], [[1], [2]])
    with pytest.raises(ValueError, match=r"tree 0: expected labels for 1 nodes, got shape \[2\]"):
        from_parents([[-1]], labels=[[1, 2]])
    with pytest.raises(ValueError, match=r"tree 1: expected values of shape \[2\] a node, as tree 0 has, got \[3\]"):
        from_parents([[-1], [-1]], [np.zeros((1, 2)), np.zeros((1, 3))])
    with pytest.raises(ValueError, match="expected numbers, got <U"):
        from_parents([[-1]], [["good"]])
    with pytest.raises(ValueError, match="expected integers of 32 bits"):
        from_nested([2**40])


def test_types_of_values():
    assert from_nested([1]).values.dtype == np.int32
    assert from_nested([[0.5, 1.5]]).values.dtype == np.float32
    assert from_parents([[-1]], [[0.5]]).values.dtype == np.float32
    vectors = [np.array([1.0, 2.0]), (np.array([3.0, 4.0]), [np.array([5.0, 6.0])])]
    forest = from_nested([vectors])
    assert forest.values.dtype == np.float64
    assert forest.values.tolist() == [[5, 6], [1, 2], [3, 4], [0, 0]]
    with pytest.raises(ValueError, match=r"values: expected one shape for all nodes, got \[\(1,\), \(2,\)\]"):
        from_nested([[np.zeros(1), np.zeros(2)]])


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "tree 1: expected at least one child in a list, got"),
        ((1, 2), r"tree 1: expected a tuple to be \(value, \[child, ...\]\), got \(int, int\)"),
        (((1, [2]), [3]), "got \\(tuple, list\\)"),
        ([1, None], "got None"),
        (["good"], "tree 1: expected numbers, since no vocabulary is given, got 'good'"),
    ],
)
def test_malformed_nests(tree, message):
    with pytest.raises(ValueError, match=message):
        from_nested([0, tree])


def test_nested_tokens_and_inner_value():
    forest = from_nested([["a", ("b", ["a"])]], vocabulary=Vocabulary(["b", "a"]), inner=7)
    assert to_nested(forest) == [(7, [3, (2, [3])])]


def test_deep_and_wide_trees():
    chain = from_parents([np.arange(-1, DEEP - 1)])
    assert chain.depth[[0, -1]].tolist() == [DEEP - 1, 0]
    nested = to_nested(chain)
    assert from_nested(nested).arity.tolist() == chain.arity.tolist()
    text = "(1 " * (DEEP - 1) + "(2 end" + ")" * DEEP
    vocabulary = Vocabulary()
    assert to_sexpr(from_sexpr(text, vocabulary=vocabulary), vocabulary=vocabulary) == [text]
    # A fan below the root, the nodes out of order, so that the walk over children is taken.
    wide = from_parents([[2, 2, -1, 1, 0] + [2] * 510])
    assert wide.arity.max() == 512
    assert wide.source.tolist()[:4] == [4, 3, 0, 1]


def test_forest_of_no_trees():
    for forest in (from_nested([]), from_parents([]), from_ast([], vocabulary={}), from_nested([1])[:0]):
        assert (len(forest), forest.num_nodes, list(forest)) == (0, 0, [])
        assert to_nested(forest) == []
        assert forest.padded()["arity"].shape == (0, 0)
    labelled = from_sexpr("\n", vocabulary={})
    assert to_sexpr(labelled, vocabulary={}) == []
    assert labelled.root_labels.shape == (0,)


@pytest.mark.parametrize(
    ("arity", "splits", "message"),
    [
        ([0, 2, 0], [0, 3], "tree 0: expected children before their parents"),
        ([0, 0], [0, 2], "tree 0: expected arities that sum to 1, the nodes but the root, got 0"),
        ([0, 0, 2, -1], [0, 3, 4], "tree 1: expected arities of 0 or more"),
        ([0], [0, 1, 1], "tree 1: expected at least one node, got 0"),
        ([0], [0, 2], "node_splits: expected to run from 0 to 1"),
        ([0.0], [0, 1], "arity: expected a vector of integers, got float64"),
    ],
)
def test_arrays_that_are_no_forest(arity, splits, message):
    with pytest.raises(ValueError, match=message):
        Forest(arity=np.array(arity), values=np.zeros(len(arity)), node_splits=np.array(splits))


def test_padded_needs_room():
    forest = from_nested([[1, 2], 3])
    assert forest.padded(4)["arity"].tolist() == [[0, 0, 2, -1], [0, -1, -1, -1]]
    with pytest.raises(ValueError, match="max_nodes: expected at least 3, the nodes of tree 0, got 2"):
        forest.padded(2)


def test_ast_nodes_and_identifiers():
    source = textwrap.dedent(
        """
        def area(width, *, height=2):
            '''Docstring.'''
            return self.scale * width * height
        """
    )
    vocabulary = ast_vocabulary()
    plain = from_ast(source, vocabulary=vocabulary.freeze())
    expected = [type(node).__name__ for node in ast.walk(ast.parse(source)) if not isinstance(node, ast.expr_context)]
    assert sorted(vocabulary.tokens[value] for value in plain.values) == sorted(expected)
    assert 1 not in plain.values

    growing = Vocabulary()
    named = from_ast([ast.parse(source), "import os"], vocabulary=growing, identifiers=True)
    names = [token for token in growing.tokens if token.startswith("'")]
    assert set(names) == {"'area'", "'width'", "'height'", "'self'", "'scale'", "'os'"}
    assert len(named) == 2
    function = named[0].source.tolist().index(1)
    first_child = named[0].child_index[named[0].row_splits[function]]
    assert growing.tokens[named[0].values[first_child]] == "'area'"


def test_ast_of_this_file_in_field_order():
    with open(__file__) as file:
        tree = ast.parse(file.read())
    vocabulary = Vocabulary()
    forest = from_ast(tree, vocabulary=vocabulary)
    in_preorder = np.empty(forest.num_nodes, np.int32)
    in_preorder[forest.source] = forest.values
    kinds = [vocabulary.tokens[value] for value in in_preorder]
    expected: list[str] = []
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        expected.append(type(node).__name__)
        children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]
        stack.extend(reversed(children))
    assert kinds == expected


def test_ast_that_cannot_be_read():
    with pytest.raises(ValueError, match="source 1, line 2: expected Python, got a syntax error"):
        from_ast(["x", "y\n1 +"], vocabulary=Vocabulary())
    with pytest.raises(ValueError, match="source 0: expected Python that its own parser can read"):
        from_ast("-" * 100_000 + "x", vocabulary=Vocabulary())
    with pytest.raises(ValueError, match=r"source 0: expected source text or an ast\.AST, got int"):
        from_ast([1], vocabulary=Vocabulary())  # type: ignore[list-item]


@pytest.mark.parametrize(
    "convert",
    [
        from_nested,
        from_parents,
        lambda given: from_sexpr(given, vocabulary=Vocabulary()),
        lambda given: from_ast(given, vocabulary=Vocabulary()),
    ],
)
@pytest.mark.parametrize("given", [None, 3, b"(2 a)", {"a": 1}])
def test_what_is_no_list_of_trees(convert, given):
    with pytest.raises(TypeError, match=f"expected a list or another iterable, got {type(given).__name__}"):
        convert(given)


@pytest.mark.parametrize("line", [None, 3, b"(2 a)"])
def test_lines_that_are_no_text(line):
    with pytest.raises(TypeError, match=f"line 2: expected text, got {type(line).__name__}"):
        from_sexpr(["(2 a)", line], vocabulary=Vocabulary())


def test_a_label_that_is_too_large():
    with pytest.raises(ValueError, match="labels: expected integers of 32 bits, got 99999999999999999999"):
        from_sexpr("(99999999999999999999 a)", vocabulary=Vocabulary())


def test_a_deep_ast_made_by_hand():
    node: ast.expr = ast.Name("x", ast.Load())
    for _ in range(DEEP):
        node = ast.UnaryOp(ast.USub(), node)
    forest = from_ast(node, vocabulary=Vocabulary())
    assert forest.num_nodes == 2 * DEEP + 1
    assert forest.depth.max() == DEEP


def test_vocabulary():
    vocabulary = Vocabulary(["a"])
    assert (vocabulary["<none>"], vocabulary["<unk>"], vocabulary["a"], vocabulary["b"]) == (0, 1, 2, 3)
    assert vocabulary.freeze()["c"] == 1
    assert "c" not in vocabulary
    assert (list(vocabulary), len(vocabulary), vocabulary.frozen) == (vocabulary.tokens, 4, True)
    assert Vocabulary(vocabulary.tokens).tokens == vocabulary.tokens
    assert Vocabulary.from_counts("abracadabra", max_tokens=2).tokens[2:] == ["a", "b"]


def test_converters_leave_tensorflow_alone():
    program = """
        import pathlib, sys, types
        sys.path.insert(0, sys.argv[1])
        import tf_ext
        # The package itself imports TensorFlow; its converters need not.
        package = types.ModuleType("tf_ext.recursion")
        package.__path__ = [str(pathlib.Path(tf_ext.__file__).parent / "recursion")]
        sys.modules["tf_ext.recursion"] = package
        from tf_ext.recursion import converters, forest, sexpr, syntax, vocabulary
        converters.from_nested([[1, 2]]).padded()
        sys.exit("tensorflow" in sys.modules)
    """
    root = pathlib.Path(tf_ext.__file__).parents[1]
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(root)], check=True)
