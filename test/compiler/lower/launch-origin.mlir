// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-lower-to-exec | FileCheck %s

// A launch is named by the part of the model that it computes, by the pass, and by the parameter whose gradient it is.
// A kernel of several parts has the first and the last; one that updates a parameter has that, whatever computed it.
// Without any name a parameter that is read helps. The names are no part of a kernel, so layers share their kernels.
//   CHECK-LABEL: exec.program @train
//         CHECK:   exec.launch @[[ABS:[a-z_0-9]+]] [{{.*}} reads 1 "h.3.mlp"
//         CHECK:   exec.launch @[[ABS]] [{{.*}} reads 1 "h.4.mlp, backward"
//         CHECK:   exec.launch @[[ABS]] [{{.*}} reads 1 "h.4.mlp, gradient of weight"
//         CHECK:   exec.launch {{.*}} reads 1 "h.3.mlp to ln_f"
//         CHECK:   exec.launch {{.*}} reads 1 "w, update"
//         CHECK:   exec.launch {{.*}} reads 1 "w"
//         CHECK:   exec.launch {{.*}} reads 1 ""
kiln.variable @w : tensor<8xf32> parameter zeros
kiln.variable @sum : tensor<8xf32> gradient zeros
kiln.program @train batch 8 {
  kiln.phase "step" repeat 1 first 0 samples 8 inputs ["x"] {
  ^bb0(%x: tensor<8xf32>):
    %a = kiln.kernel(%x) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<8xf32>):
      %q = kiln.abs %p : tensor<8xf32> loc("h.3.mlp")
      kiln.yield %q : tensor<8xf32>
    }
    %b = kiln.kernel(%a) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<8xf32>):
      %q = kiln.abs %p : tensor<8xf32> loc(fused<{kiln.pass = "backward"}>["h.4.mlp"])
      kiln.yield %q : tensor<8xf32>
    }
    %c = kiln.kernel(%b) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<8xf32>):
      %q = kiln.abs %p : tensor<8xf32> loc(fused<{kiln.pass = "backward", kiln.gradient_of = "h.4.mlp.weight"}>["h.4.mlp"])
      kiln.yield %q : tensor<8xf32>
    }
    %d = kiln.kernel(%c) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<8xf32>):
      %q = kiln.exp %p : tensor<8xf32> loc("h.3.mlp")
      %r = kiln.abs %q : tensor<8xf32> loc("h.4.mlp")
      %s = kiln.abs %r : tensor<8xf32> loc("ln_f")
      kiln.yield %s : tensor<8xf32>
    }
    %e = kiln.kernel(%d) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<8xf32>):
      %q = kiln.exp %p : tensor<8xf32> loc("h.3.mlp")
      kiln.yield %q : tensor<8xf32>
    }
    %w = kiln.read @w : tensor<8xf32>
    kiln.assign @w, %e : tensor<8xf32>
    %f = kiln.kernel(%w) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<8xf32>):
      %q = kiln.sqrt %p : tensor<8xf32> loc(unknown)
      kiln.yield %q : tensor<8xf32>
    }
    %g = kiln.kernel(%f) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<8xf32>):
      %q = kiln.exp %p : tensor<8xf32> loc(unknown)
      kiln.yield %q : tensor<8xf32>
    }
    kiln.assign @sum, %g : tensor<8xf32>
    kiln.yield
  }
}
