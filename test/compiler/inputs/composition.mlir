// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A network that no model in models/ is made of: sines and error functions side by side, a transposed product,
// the greatest element taken off, a table that is looked up by label. If the runtime knew models instead of programs,
// it could not train this.
kiln.variable @waves : tensor<12x9xf32> parameter uniform {a = -0.8, b = 0.8, decays}
kiln.variable @steps : tensor<12x7xf32> parameter uniform {a = -0.8, b = 0.8, decays}
kiln.variable @phase : tensor<9xf32> parameter normal {a = 0.0, b = 0.5}
kiln.variable @mix : tensor<16x5xf32> parameter normal {a = 0.0, b = 0.3, decays}
kiln.variable @table : tensor<5x5xf32> parameter normal {a = 0.0, b = 0.1}

func.func @model(%image: tensor<?x12xf32> {kiln.input = "image"}, %label: tensor<?xi32> {kiln.input = "label"},
    %waves: tensor<12x9xf32> {kiln.variable = @waves}, %steps: tensor<12x7xf32> {kiln.variable = @steps},
    %phase: tensor<9xf32> {kiln.variable = @phase}, %mix: tensor<16x5xf32> {kiln.variable = @mix},
    %table: tensor<5x5xf32> {kiln.variable = @table})
    -> (tensor<f32>, tensor<f32> {kiln.denominator}) attributes {kiln.loss} {
  %wave = kiln.contract "bk,kn->bn" %image, %waves : tensor<?x12xf32>, tensor<12x9xf32> -> tensor<?x9xf32>
  %phases = kiln.broadcast "n->bn" %phase : tensor<9xf32> -> tensor<?x9xf32>
  %shifted = kiln.add %wave, %phases : tensor<?x9xf32>
  %sine = kiln.sin %shifted : tensor<?x9xf32>
  %step = kiln.contract "bk,kn->bn" %image, %steps : tensor<?x12xf32>, tensor<12x7xf32> -> tensor<?x7xf32>
  %bent = kiln.erf %step : tensor<?x7xf32>
  %both = kiln.concatenate %sine, %bent dimension 1 : (tensor<?x9xf32>, tensor<?x7xf32>) -> tensor<?x16xf32>
  // The norm of a sample's features, as rows of a transposed matrix.
  %turned = kiln.transpose "bn->nb" %both : tensor<?x16xf32> -> tensor<16x?xf32>
  %squares = kiln.mul %turned, %turned : tensor<16x?xf32>
  %energy = kiln.sum "nb->b" %squares : tensor<16x?xf32> -> tensor<?xf32>
  %one = kiln.constant 1.0 : tensor<f32>
  %ones = kiln.broadcast "->b" %one : tensor<f32> -> tensor<?xf32>
  %safe = kiln.add %energy, %ones : tensor<?xf32>
  %scale = kiln.rsqrt %safe : tensor<?xf32>
  %scores = kiln.contract "nb,nc->bc" %turned, %mix : tensor<16x?xf32>, tensor<16x5xf32> -> tensor<?x5xf32>
  %scales = kiln.broadcast "b->bc" %scale : tensor<?xf32> -> tensor<?x5xf32>
  %scaled = kiln.mul %scores, %scales : tensor<?x5xf32>
  %greatest = kiln.max "bc->b" %scaled : tensor<?x5xf32> -> tensor<?xf32>
  %tops = kiln.broadcast "b->bc" %greatest : tensor<?xf32> -> tensor<?x5xf32>
  %below = kiln.sub %scaled, %tops : tensor<?x5xf32>
  %rows = kiln.embedding %table, %label : (tensor<5x5xf32>, tensor<?xi32>) -> tensor<?x5xf32>
  %logits = kiln.add %below, %rows : tensor<?x5xf32>
  %loss = kiln.softmax_cross_entropy %logits, %label : (tensor<?x5xf32>, tensor<?xi32>) -> tensor<f32>
  %count = kiln.sum "b->" %ones : tensor<?xf32> -> tensor<f32>
  return %loss, %count : tensor<f32>, tensor<f32>
}
