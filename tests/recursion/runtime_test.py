"""The invoke executor, on programs written by hand: calls, maps, jumps, limits, errors."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.eager import cancellation

from tests.recursion.program_builder import FLAG, INTEGER, Program, Result, gradients, row, run
from tests.recursion.programs import fibonacci


def invoke(program: Program, args: list, **kwargs) -> Result:
    return run(program, args, execution="invoke", **kwargs)


def fib(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def countdown_program(max_depth: int = 1_000_000, graph_of_the_end=None) -> Program:
    """count(n) = 0 if n <= 0 else 1 + count(n - 1), calls 1 deep on the way."""
    program = Program(max_depth=max_depth)
    count = program.function("count", [INTEGER], [FLAG, INTEGER, INTEGER, INTEGER], results=[4])
    test = program.graph(count, ["slot:0"], lambda n: {"slot:1": n <= 0, "slot:2": n - 1})
    program.block(count, graph=test, switch=1, targets=[1, 2])
    more = program.block(count, next=3)
    end = graph_of_the_end or (lambda n: {"slot:4": tf.zeros_like(n)})
    program.block(count, graph=program.graph(count, ["slot:0"], end), rank=1)
    program.block(count, graph=program.graph(count, ["slot:3"], lambda n: {"slot:4": n + 1}), rank=3)
    program.call(more, [count], args=[2], results=[3])
    return program


@pytest.mark.parametrize("sequential", [False, True])
def test_two_calls_meet_in_their_caller(sequential):
    assert int(invoke(fibonacci(), [20], sequential=sequential).results[0]) == fib(20)


def test_one_root_call_per_row():
    results = invoke(fibonacci(), [[3, 12, 0, 7]], map=True).results[0]
    np.testing.assert_array_equal(results, [fib(3), fib(12), 0, fib(7)])
    assert invoke(fibonacci(), [np.zeros([0], np.int32)], map=True).results[0].shape == (0,)


def test_depth_costs_no_stack():
    assert int(invoke(countdown_program(), [300_000]).results[0]) == 300_000


def test_collected_calls_come_in_the_order_of_the_program():
    numbers, results = invoke(fibonacci(), [4], collect=True).calls
    np.testing.assert_array_equal(numbers, [4, 3, 2, 1, 0, 1, 2, 1, 0])
    np.testing.assert_array_equal(results, [fib(n) for n in numbers.numpy()])
    large = [invoke(fibonacci(), [15], collect=True).calls[0] for _ in range(3)]
    assert all(np.array_equal(large[0], other) for other in large)


def children_program(mode: str, reduce: str) -> Program:
    """f(n) = n + reduce(f(0), ..., f(n - 1)), where a stack is reduced by the caller, with weights 1, 2, 3 ..."""
    table = tf.TensorSpec([None], tf.int32)
    program = Program(env=[table])
    rows = row(None, dtype=tf.int32) if reduce == "stack" else INTEGER
    f = program.function("f", [INTEGER], [row(None, dtype=tf.int32), INTEGER, rows, INTEGER], results=[4])
    mapped = {"slot:1": lambda n: tf.reshape(tf.range(tf.reduce_sum(n)), [1, -1]), "slot:2": tf.zeros_like}
    graph = program.graph(f, ["slot:0"], lambda n: {target: make(n) for target, make in mapped.items()})
    program.block(f, graph=graph, next=1)

    def total(n, values):
        if reduce == "sum":
            return {"slot:4": n + values}
        weights = 1 + tf.range(tf.shape(values)[1])
        return {"slot:4": n + tf.reduce_sum(values * weights, axis=1)}

    program.block(f, graph=program.graph(f, ["slot:0", "slot:3"], total), rank=3)
    if mode == "map":
        program.call(0, [f], args=[1], results=[3], mode="map", mapped=[True], reduce=reduce)
    else:
        tables = {"range": -1, "table": 0}
        program.call(
            0, [f], args=[-1], results=[3], mode="range", mapped=[True], reduce=reduce, start=2, limit=0,
            tables=[tables[mode]],
        )  # fmt: skip
    return program


def children(n: int, reduce: str) -> int:
    weight = (lambda j: 1) if reduce == "sum" else (lambda j: j + 1)
    return n + sum(weight(j) * children(j, reduce) for j in range(n))


@pytest.mark.parametrize("mode", ["map", "range", "table"])
@pytest.mark.parametrize("reduce", ["stack", "sum"])
def test_mapped_calls(mode, reduce):
    result = invoke(children_program(mode, reduce), [6], env=[np.arange(6)])
    assert int(result.results[0]) == children(6, reduce)


def test_a_range_beyond_its_table():
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)row 3 .*'f' at depth 1"):
        invoke(children_program("table", "sum"), [6], env=[np.arange(3)])


@pytest.mark.parametrize(("selector", "expected"), [(0, 11), (1, 12), (2, 13), (7, 13), (-1, 13)])
def test_a_dynamic_callee(selector, expected):
    program = Program()
    root = program.function("root", [INTEGER, INTEGER], [INTEGER], results=[2])
    program.block(root, next=1)
    program.block(root)
    branches = []
    for add in (1, 2, 3):
        branch = program.function(f"root/branch_{add}", [INTEGER], [INTEGER], results=[1], is_branch=True)
        program.block(branch, graph=program.graph(branch, ["slot:0"], lambda n, add=add: {"slot:1": n + add}), rank=1)
        branches.append(branch)
    program.call(0, branches, args=[1], results=[2], selector=0)
    assert int(invoke(program, [selector, 10]).results[0]) == expected


@pytest.mark.parametrize("dtype", [tf.bool, tf.int32, tf.int64])
def test_a_jump_inside_a_frame(dtype):
    program = Program()
    slot = row(dtype=dtype)
    f = program.function("f", [INTEGER], [slot, INTEGER], results=[2])
    choice = program.graph(f, ["slot:0"], lambda n: {"slot:1": tf.cast(n > 5, dtype)})
    program.block(f, graph=choice, switch=1, targets=[1, 2])
    for offset in (100, 200):
        program.block(f, graph=program.graph(f, ["slot:0"], lambda n, k=offset: {"slot:2": n + k}), rank=1)
    assert int(invoke(program, [5]).results[0]) == 105
    assert int(invoke(program, [6]).results[0]) == 206


def test_moves_and_a_side_block():
    program = Program()
    f = program.function("f", [INTEGER, INTEGER], [INTEGER] * 4, results=[5, 1])
    identity = program.function("identity", [INTEGER], [], results=[0])
    # f: swap 0 and 1 by way of 2; 4 = 10 * slot 0 on the side; 3 = identity(slot 1); 5 = 3 + 4
    program.block(f, moves=[(2, 0), (0, 1), (1, 2)], next=2, side=1)
    program.block(f, graph=program.graph(f, ["slot:0"], lambda n: {"slot:4": n * 10}), next=-2, rank=2)
    program.block(f, graph=program.graph(f, ["slot:3", "slot:4"], lambda a, b: {"slot:5": a + b}), rank=3)
    program.block(identity, rank=1)
    program.functions[identity].attr["entry"].i = 3
    program.call(0, [identity], args=[1], results=[3])
    np.testing.assert_array_equal(invoke(program, [3, 7]).results, [73, 3])


def test_an_error_says_where_it_happened():
    def fail(n):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(n > 0), ["no end"], name="check_end")]):
            return {"slot:4": tf.identity(n)}

    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)check_end.*no end.*'count' at depth 8"):
        invoke(countdown_program(graph_of_the_end=fail), [7])


def test_a_recursion_without_end():
    assert int(invoke(countdown_program(max_depth=51), [50]).results[0]) == 50
    with pytest.raises(tf.errors.ResourceExhaustedError, match="'count' .* max_depth = 50"):
        invoke(countdown_program(max_depth=50), [50])
    with pytest.raises(tf.errors.ResourceExhaustedError, match="max_live_calls = 20 .*'fib'"):
        invoke(fibonacci(max_live_calls=20), [25])


def test_cancellation():
    program = fibonacci()

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def long(n):
        return invoke(program, [n]).results[0]

    manager = cancellation.CancellationManager()
    function = manager.get_cancelable_function(long.get_concrete_function())
    assert int(function(tf.constant(10))) == fib(10)
    cancelled_at = []

    def cancel():
        time.sleep(0.3)
        cancelled_at.append(time.monotonic())
        manager.start_cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(tf.errors.CancelledError):
        function(tf.constant(45))  # would take an hour
    assert time.monotonic() - cancelled_at[0] < 1
    thread.join()


def test_concurrent_steps():
    program = fibonacci()
    function = tf.function(lambda n: invoke(program, [n]).results[0]).get_concrete_function(tf.TensorSpec([], tf.int32))
    wrong = []

    def work(n):
        wrong.extend(k for k in range(20) if int(function(tf.constant(n + k % 3))) != fib(n + k % 3))

    threads = [threading.Thread(target=work, args=[n]) for n in (11, 12, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(("args", "message"), [([[1, 2]], r"argument 0 .*'fib'.* int32 of shape \[\]")])
def test_arguments_that_do_not_fit(args, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        invoke(fibonacci(), args)


def test_a_program_that_is_none():
    program = fibonacci()
    program.functions[0].attr["entry"].i = 9
    with pytest.raises(tf.errors.InvalidArgumentError, match="malformed recursion program: entry is 9"):
        invoke(program, [3])


def test_a_gradient_needs_a_tape():
    result = invoke(countdown_program(), [3])
    with pytest.raises(tf.errors.FailedPreconditionError, match="kept no tape"):
        gradients(result, [])


class ProgramWithFunctions(Program):
    """Moves the functions that a block's operators name to where the program has them."""

    def serialized(self) -> bytes:
        program = graph_pb2.GraphDef.FromString(super().serialized())
        for record in program.node:
            if record.op == "Graph":
                graph = graph_pb2.GraphDef.FromString(record.attr["def"].s)
                program.library.MergeFrom(graph.library)
                graph.ClearField("library")
                record.attr["def"].s = graph.SerializeToString()
        return program.SerializeToString()


def test_operators_that_call_functions():
    """A loop inside a body runs on the thread of the block, however many iterations it has."""
    program = ProgramWithFunctions()
    f = program.function("f", [INTEGER], [INTEGER], results=[1])

    def body(n):
        _, total = tf.while_loop(lambda i, _: i < 20_000, lambda i, t: (i + 1, t + n), [0, tf.zeros_like(n)])
        return {"slot:1": total}

    program.block(f, graph=program.graph(f, ["slot:0"], body), rank=1)
    assert "While" in str(program.records[0].attr["def"].s)
    assert int(invoke(program, [3]).results[0]) == 60_000


def test_functions_and_conditionals_inside_a_block():
    program = ProgramWithFunctions()
    f = program.function("f", [INTEGER], [INTEGER], results=[1])
    double = tf.function(lambda n: 2 * n, autograph=False)

    def body(n):
        doubled = double(n)
        return {"slot:1": tf.cond(tf.reduce_all(n > 2), lambda: double(doubled), lambda: doubled + 1)}

    program.block(f, graph=program.graph(f, ["slot:0"], body), rank=1)
    graph = str(program.records[0].attr["def"].s)
    assert "PartitionedCall" in graph and "If" in graph
    assert [int(invoke(program, [n]).results[0]) for n in (2, 3)] == [5, 12]


def test_an_error_leaves_nothing_behind():
    """The same kernel goes on as if nothing had been; two threads meet errors at any place."""

    def fail(n):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(tf.not_equal(n, 1)), ["one"])]):
            return {"slot:1": n < 2}

    program = fibonacci()
    program.records[0].CopyFrom(fibonacci_that_fails(fail))
    for n in (12, 0, 14, 0):
        if n:
            with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)one.*'fib' at depth"):
                invoke(program, [n])
        else:
            assert int(invoke(program, [0]).results[0]) == 0


def fibonacci_that_fails(test) -> node_def_pb2.NodeDef:
    program = Program()
    fib = program.function("fib", [INTEGER], [FLAG, *[INTEGER] * 5], results=[6])
    program.graph(fib, ["slot:0"], test)
    return program.records[0]
