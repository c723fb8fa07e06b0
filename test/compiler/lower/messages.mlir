// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-lower-to-exec | FileCheck %s

// In the update nothing hides a sum: were all started at once, their messages would take as much as all gradients. The
// first is done before the messages of the fourth are made. Each result lies where the gradient was summed up over
// micro-batches, which nobody reads again.
// CHECK-LABEL: exec.program @train
//       CHECK:   exec.launch {{.*}} [@variable.sum.0, @[[A:[a-z_.0-9]*]]] [0, 0]
//  CHECK-NEXT:   exec.collective reduce_scatter bf16 {{.*}} [@[[A]], @variable.sum.0] {{.*}} ticket 0
//  CHECK-NEXT:   exec.launch {{.*}} [@variable.sum.1, @[[B:[a-z_.0-9]*]]] [0, 0]
//  CHECK-NEXT:   exec.collective reduce_scatter bf16 {{.*}} [@[[B]], @variable.sum.1] {{.*}} ticket 1
//  CHECK-NEXT:   exec.launch {{.*}} [@variable.sum.2, @[[C:[a-z_.0-9]*]]] [0, 0]
//  CHECK-NEXT:   exec.collective all_reduce bf16 {{.*}} [@[[C]], @variable.sum.2] {{.*}} ticket 2
//  CHECK-NEXT:   exec.wait 0 [@[[A]], @variable.sum.0]
//  CHECK-NEXT:   exec.launch {{.*}} [@variable.sum.3, @[[D:[a-z_.0-9]*]]] [0, 0]
//  CHECK-NEXT:   exec.collective all_reduce bf16 {{.*}} [@[[D]], @[[D]]] {{.*}} ticket 3
//  CHECK-NEXT:   exec.wait 1 [@[[B]], @variable.sum.1]
// The fourth gradient is read later: its sum lies over the message.
//       CHECK:   exec.launch {{.*}} [@[[D]], @variable.sum.3, @variable.next.3]

module attributes {kiln.mesh = #kiln.mesh<["data", "tensor"], [2, 1]>} {
  kiln.variable @sum.0 : tensor<8xf32> gradient zeros
  kiln.variable @sum.1 : tensor<8xf32> gradient zeros
  kiln.variable @sum.2 : tensor<8xf32> gradient zeros
  kiln.variable @sum.3 : tensor<8xf32> gradient zeros
  kiln.variable @next.0 : tensor<4xf32> parameter zeros
  kiln.variable @next.1 : tensor<4xf32> parameter zeros
  kiln.variable @next.2 : tensor<8xf32> parameter zeros
  kiln.variable @next.3 : tensor<8xf32> parameter zeros
  kiln.program @train batch 4 {
    kiln.phase "update" repeat 1 first 0 samples 4 inputs [] {
      %sum0 = kiln.read @sum.0 : tensor<8xf32>
      %message0 = kiln.kernel(%sum0) : (tensor<8xf32>) -> tensor<8xbf16> {
      ^bb0(%a: tensor<8xf32>):
        %c = kiln.convert %a : tensor<8xf32> -> tensor<8xbf16>
        kiln.yield %c : tensor<8xbf16>
      }
      %total0 = kiln.reduce_scatter %message0 over ["data"] along [0] blocks [1] units [1] : (tensor<8xbf16>) -> tensor<4xbf16>
      %sum1 = kiln.read @sum.1 : tensor<8xf32>
      %message1 = kiln.kernel(%sum1) : (tensor<8xf32>) -> tensor<8xbf16> {
      ^bb0(%a: tensor<8xf32>):
        %c = kiln.convert %a : tensor<8xf32> -> tensor<8xbf16>
        kiln.yield %c : tensor<8xbf16>
      }
      %total1 = kiln.reduce_scatter %message1 over ["data"] along [0] blocks [1] units [1] : (tensor<8xbf16>) -> tensor<4xbf16>
      %sum2 = kiln.read @sum.2 : tensor<8xf32>
      %message2 = kiln.kernel(%sum2) : (tensor<8xf32>) -> tensor<8xbf16> {
      ^bb0(%a: tensor<8xf32>):
        %c = kiln.convert %a : tensor<8xf32> -> tensor<8xbf16>
        kiln.yield %c : tensor<8xbf16>
      }
      %total2 = kiln.all_reduce sum %message2 over ["data"] : (tensor<8xbf16>) -> tensor<8xbf16>
      %sum3 = kiln.read @sum.3 : tensor<8xf32>
      %message3 = kiln.kernel(%sum3) : (tensor<8xf32>) -> tensor<8xbf16> {
      ^bb0(%a: tensor<8xf32>):
        %c = kiln.convert %a : tensor<8xf32> -> tensor<8xbf16>
        kiln.yield %c : tensor<8xbf16>
      }
      %total3 = kiln.all_reduce sum %message3 over ["data"] : (tensor<8xbf16>) -> tensor<8xbf16>
      %next0 = kiln.kernel(%total0) : (tensor<4xbf16>) -> tensor<4xf32> {
      ^bb0(%a: tensor<4xbf16>):
        %c = kiln.convert %a : tensor<4xbf16> -> tensor<4xf32>
        kiln.yield %c : tensor<4xf32>
      }
      kiln.assign @next.0, %next0 : tensor<4xf32>
      %next1 = kiln.kernel(%total1) : (tensor<4xbf16>) -> tensor<4xf32> {
      ^bb0(%a: tensor<4xbf16>):
        %c = kiln.convert %a : tensor<4xbf16> -> tensor<4xf32>
        kiln.yield %c : tensor<4xf32>
      }
      kiln.assign @next.1, %next1 : tensor<4xf32>
      %next2 = kiln.kernel(%total2) : (tensor<8xbf16>) -> tensor<8xf32> {
      ^bb0(%a: tensor<8xbf16>):
        %c = kiln.convert %a : tensor<8xbf16> -> tensor<8xf32>
        kiln.yield %c : tensor<8xf32>
      }
      kiln.assign @next.2, %next2 : tensor<8xf32>
      %next3 = kiln.kernel(%total3, %sum3) : (tensor<8xbf16>, tensor<8xf32>) -> tensor<8xf32> {
      ^bb0(%a: tensor<8xbf16>, %b: tensor<8xf32>):
        %c = kiln.convert %a : tensor<8xbf16> -> tensor<8xf32>
        %d = kiln.add %c, %b : tensor<8xf32>
        kiln.yield %d : tensor<8xf32>
      }
      kiln.assign @next.3, %next3 : tensor<8xf32>
      kiln.yield
    }
  }
}
