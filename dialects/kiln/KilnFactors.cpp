// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How dimensions of operands and results belong together, for ops that are not
// Structured.
#include "dialects/kiln/Composer.h"

using namespace mlir;

namespace kiln {

static std::string letters(Value value) {
  return indexLetters(tensorType(value).getRank());
}

// All dimensions but the last, which is whole.
static std::string rowsOf(Value value) {
  return indexLetters(tensorType(value).getRank() - 1);
}

static std::string unaryFactors(Value value) {
  return letters(value) + "->" + letters(value);
}

std::string ReluOp::getFactors() { return unaryFactors(getOperand()); }
std::string GeluOp::getFactors() { return unaryFactors(getOperand()); }

std::string DropoutOp::getFactors() {
  std::string all = letters(getOperand());
  return all + "," + all.substr(0, 1) + "," +
         (getElements() ? "," + all.substr(1) : "") + "->" + all;
}

std::string IotaOp::getFactors() { return "->a"; }

std::string EmbeddingOp::getFactors() {
  std::string ids = letters(getIds());
  return "vk," + ids + (getFirst() ? "," : "") + "->" + ids + "k";
}

std::string EmbeddingGradOp::getFactors() {
  std::string ids = letters(getIds());
  return ids + "," + ids + "k" + (getFirst() ? "," : "") + "->vk";
}

std::string LayerNormOp::getFactors() {
  std::string rows = rowsOf(getOperand());
  return rows + "X,X" + (getShift() ? ",X" : "") + "->" + rows + "X," + rows +
         "," + rows;
}

std::string SoftmaxOp::getFactors() {
  std::string rows = rowsOf(getOperand());
  return rows + "X->" + rows + "X";
}

std::string SoftmaxCrossEntropyOp::getFactors() {
  std::string rows = rowsOf(getLogits());
  return rows + "X," + rows + "->";
}

std::string HeadLossOp::getFactors() {
  std::string rows = rowsOf(getX());
  std::string scalars = rows + "X,VX," + rows + "->,";
  return hasGradients() ? scalars + "," + rows + "X,VX" : scalars;
}

// Statistics are over all places of the samples of a group: only channels, and
// batches in groups, are apart.
static std::string imageFactors(Value images) {
  std::string places;
  for (int64_t dim = 2; dim < tensorType(images).getRank(); ++dim)
    places += char('H' + dim - 2);
  return "b" + places + "c";
}

std::string BatchNormOp::getFactors() {
  std::string images = imageFactors(getOperand());
  return images + ",c,c->" + images + ",bc,bc";
}

std::string BatchNormGradOp::getFactors() {
  std::string images = imageFactors(getOperand());
  return images + ",c,bc,bc," + images + "->" + images + ",c,c";
}

std::string AttentionOp::getFactors() {
  return getLengths() ? "bSPhD,b->bShD,bhS" : "bSPhD->bShD,bhS";
}

std::string AttentionGradOp::getFactors() {
  return getLengths() ? "bSPhD,bShD,bhS,bShD,b->bSPhD"
                      : "bSPhD,bShD,bhS,bShD->bSPhD";
}

std::string ConvolutionOp::getFactors() { return "bHWi,oiPQ->bYXo"; }
std::string ConvolutionGradInputOp::getFactors() { return "bYXo,oiPQ->bHWi"; }
std::string ConvolutionGradWeightOp::getFactors() { return "bHWi,bYXo->oiPQ"; }
std::string MaxPoolOp::getFactors() { return "bHWc->bYXc"; }
std::string MaxPoolGradOp::getFactors() { return "bHWc,bYXc,bYXc->bHWc"; }

} // namespace kiln
