// RUN: kiln-opt %s -kiln-split-images=shares=3,2,3 | FileCheck %s
// RUN: not kiln-opt %s -kiln-split-images 2>&1 | FileCheck %s --check-prefix=NONE

// Replicas with the same share run the same image, so that two shares are two
// images; each has all of the module, attributes included.
//       NONE: error: needs the shares of the replicas, found none
// CHECK-LABEL: module attributes {test.mesh = "3"} {
//       CHECK:   module @image0 attributes {kiln.share = 3 : i64, test.mesh = "3"} {
//       CHECK:     kiln.variable @w
//       CHECK:     func.func @f
//       CHECK:   module @image1 attributes {kiln.share = 2 : i64, test.mesh = "3"} {
//       CHECK:     kiln.variable @w
//       CHECK:     func.func @f
//   CHECK-NOT:   module
module attributes {test.mesh = "3"} {
  kiln.variable @w : tensor<4xf32> parameter zeros
  func.func @f(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    return %x : tensor<?x4xf32>
  }
}
