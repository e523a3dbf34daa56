"""Keras layers over trees: TreeLSTM, TreeRNN and RNTN.

All take the nodes of a batch of trees (`tf_ext.recursion.Trees`, or the dict that `tf.data` batches) and give a vector
for each tree, or with `return_nodes=True` for each node. In a `tf.function`, as in `fit` or `predict`, the recursion is
traced once and then runs as one operator; a layer that is called outside of one traces it with every call.

Example::

    from tf_ext.recursion import Trees, layers

    inputs = Trees.inputs()
    h = layers.ChildSumTreeLSTM(128, embedding=keras.layers.Embedding(1000, 64))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(5)(h))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(forest.dataset(forest.root_labels).shuffle(1000).batch(25).prefetch(1))
"""

from __future__ import annotations

from tf_ext.recursion.layers._base import TreeLayer
from tf_ext.recursion.layers._tree_lstm import ChildSumTreeLSTM, NaryTreeLSTM
from tf_ext.recursion.layers._tree_rnn import RNTN, TreeRNN

__all__ = ["RNTN", "ChildSumTreeLSTM", "NaryTreeLSTM", "TreeLayer", "TreeRNN"]
