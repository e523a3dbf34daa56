# What .ci/run runs beside the targets of the Makefile. Each lane also runs by itself: `make ci-wheel`.

.PHONY: ci-optional ci-wheel ci-no-tensorflow ci-tensorflow-2.20 ci-second-python ci-bazel ci-bench

# `make test` ran before the optional parts were there; what asks for one runs again, and may not skip.
ci-optional: $(STAMPS)/ops $(STAMPS)/bench ## the tests that need an optional part
	@TF_EXT_REQUIRE_ALL=1 $(PYTEST) -q -m 'not slow' $$(grep -rlE '\brequire\("' tests --include='*_test.py') $(ARGS)

ci-wheel: ## build the wheel as pip does, install it in a clean environment outside the tree, test it there
	@.ci/wheel build
	@.ci/wheel test wheel 'tensorflow-cpu>=2.21,<2.22' $(ARGS)

ci-no-tensorflow: ## what needs no TensorFlow works without it, with and without the operators in the wheel
	@.ci/wheel no-tensorflow

ci-tensorflow-2.20: ## TensorFlow 2.20: the wheel for 2.21 is refused and repaired; one built for 2.20 passes the tests
	@.ci/wheel other-tensorflow 2.20 $(ARGS)

ci-second-python: ## the wheel under another Python, and with `tensorflow` in the place of `tensorflow-cpu`
	@.ci/wheel second-python $(ARGS)

ci-bazel: $(STAMPS)/install ## build the operators and run their test under Bazel, with no network
	@command -v bazel >/dev/null || { echo "Bazel is needed. Install it: apt-get install bazel-bootstrap" >&2; exit 1; }
	@TF_EXT_PYTHON=$(abspath $(BIN))/python bazel test //... --noshow_progress
	@bazel shutdown

ci-bench: $(STAMPS)/ops $(STAMPS)/bench ## a short run of the benchmarks, checked against the bars
	@$(BIN)/python -m benchmarks.recursion --bars --smoke $(ARGS)
	@$(BIN)/python -m benchmarks.tuner --bars --smoke $(ARGS)
	@$(BIN)/python -m benchmarks.lite --bars --smoke $(ARGS)
