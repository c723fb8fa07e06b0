// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-apply-precision="compute=fp8" -verify-diagnostics

// expected-error @below {{knows no element type 'fp8'; wanted f32, f64, bf16 or f16}}
module {}
