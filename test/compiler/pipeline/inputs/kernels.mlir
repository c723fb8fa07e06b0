// An op outside of kernels would be lost: only kernels are launched.
kiln.program @train batch 1 {
  kiln.phase "step" repeat 1 first 0 samples 1 inputs ["x"] {
  ^bb0(%x: tensor<1x4xf32>):
    // expected-error@+1 {{is not in a kernel}}
    %y = kiln.negate %x : tensor<1x4xf32>
    kiln.yield
  }
}
