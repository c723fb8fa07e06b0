// A launch on memory that its kernel does not work on would read the other's.
exec.buffer @a activation bytes 16
exec.buffer @b activation bytes 16 host
exec.kernel @negate alignments [64, 64] overlaps [] {
^bb0(%x: tensor<4xf32>):
  %y = kiln.negate %x : tensor<4xf32>
  kiln.yield %y : tensor<4xf32>
} {scratch_bytes = 0 : i64}
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "step" repeat 1 {
    // expected-error@+1 {{passes @b, which does not lie in the memory that kernel negate works on}}
    exec.launch @negate [@a, @b] [0, 0] [0, 0] reads 1 "negate" {bytes = 0 : i64, flops = 0 : i64}
  }
}

// -----

exec.buffer @a activation bytes 16
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "step" repeat 1 {
    // expected-error@+1 {{waits for ticket 3, which is not running}}
    exec.wait 3 [@a]
  }
}
