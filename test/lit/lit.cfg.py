# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Tests of dialects and passes on text. They mirror the tree under test/, so the suite's root is test/ itself.
import os

import lit.formats

config.name = "kiln"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.join(config.kiln_source, "test")
config.test_exec_root = os.path.join(config.kiln_build, "test", "lit", "output")
# Programs that C++ tests compile and run; they have no RUN lines.
config.excludes = ["gradients", "inputs"]
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(config.kiln_build, "bin"), config.llvm_tools, os.environ["PATH"]]
)
# Paths in quotes: the tree may lie in a folder with a space in its name.
config.substitutions += [(name, f'"{name}"') for name in ("%s", "%S")]
