// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/compiler/fuse/RandomDag.h"

#include <algorithm>
#include <numeric>

using namespace mlir;

namespace kiln::test {

RandomDag::RandomDag(ModuleOp module, const std::string &name, uint64_t seed,
                     bool isWidened)
    : generator(seed), builder(OpBuilder::atBlockEnd(module.getBody())),
      c(builder, module.getLoc()) {
  isNarrow = chance(50);
  element = isNarrow && !isWidened ? Type(builder.getF32Type())
                                   : builder.getF64Type();
  function = func::FuncOp::create(builder, module.getLoc(), name,
                                  builder.getFunctionType({}, {}));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  chooseSpaces();
  unsigned inputs = 1 + draw(3);
  for (unsigned i = 0; i < inputs; ++i) {
    Node shape;
    shape.has.assign(spaces[0].sizes.size(), true);
    // Half of the other arguments lack the first dimensions, as parameters lack
    // the batch.
    size_t first = i > 0 && chance(50) ? draw(shape.has.size() + 1) : 0;
    for (size_t dim = 0; dim < shape.has.size(); ++dim)
      shape.has[dim] = i == 0 || (dim >= first && chance(70));
    addArgument(shape, element, -2, 2);
  }
  // In f32 a long chain would round more than the comparison allows.
  unsigned ops = isF32() ? 4 + draw(16) : 4 + draw(40);
  for (unsigned i = 0; i < ops; ++i)
    addOp();
  finish();
}

// Rank 0 to 4 with odd sizes and ones; now and then rows or columns that are
// longer than a block of vectors, or one row that workers share.
void RandomDag::chooseSpaces() {
  static constexpr int64_t kSizes[] = {1, 2, 3, 5, 7, 8, 13, 16, 17, 33, 65};
  if (chance(5)) {
    spaces.push_back({{32768 + int64_t(draw(40000))}, ""});
    return;
  }
  std::vector<int64_t> sizes(draw(5));
  int64_t elements = 1;
  for (int64_t &size : sizes) {
    size = kSizes[draw(std::size(kSizes))];
    if (elements * size > 6000)
      size = 2;
    elements *= size;
  }
  if (!sizes.empty() && chance(15)) {
    size_t dim = chance(70) ? sizes.size() - 1 : draw(sizes.size());
    int64_t others = elements / sizes[dim];
    int64_t size = 5001 + draw(4000);
    if (others * size < 40000)
      sizes[dim] = size;
  }
  spaces.push_back({sizes, ""});
  if (sizes.size() < 2)
    return;
  // Two neighbours as one dimension.
  size_t first = draw(sizes.size() - 1);
  std::vector<int64_t> merged = sizes;
  merged[first] *= merged[first + 1];
  merged.erase(merged.begin() + first + 1);
  spaces.push_back({merged, ""});
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[draw(i + 1)]);
  Space permuted;
  std::string from = indexLetters(sizes.size()), to;
  for (size_t dim : order) {
    permuted.sizes.push_back(sizes[dim]);
    to += from[dim];
  }
  permuted.transposed = from + "->" + to;
  spaces.push_back(permuted);
}

std::string RandomDag::letters(const std::vector<bool> &has) {
  std::string text;
  for (size_t dim = 0; dim < has.size(); ++dim)
    if (has[dim])
      text += char('a' + dim);
  return text;
}

RankedTensorType RandomDag::typeOf(unsigned space, const std::vector<bool> &has,
                                   Type type) const {
  SmallVector<int64_t> shape;
  for (size_t dim = 0; dim < has.size(); ++dim)
    if (has[dim])
      shape.push_back(spaces[space].sizes[dim]);
  return RankedTensorType::get(shape, type);
}

void RandomDag::push(Value value, const Node &like, bool isExact) {
  nodes.push_back({value, like.space, like.has, isExact});
}

void RandomDag::addArgument(const Node &shape, Type type, double low,
                            double high) {
  RankedTensorType tensor = typeOf(shape.space, shape.has, type);
  unsigned index = function.getNumArguments();
  (void)function.insertArgument(index, tensor, builder.getDictionaryAttr({}),
                                c.loc);
  arguments.push_back(
      {tensor.getNumElements(), low, high, !isa<FloatType>(type)});
  if (isa<FloatType>(type))
    push(function.getArgument(index), shape, true);
}

// Recent values more often: chains grow deep, and old values live long.
const RandomDag::Node &RandomDag::pick() {
  if (chance(60))
    return nodes[nodes.size() - 1 - draw(std::min<size_t>(nodes.size(), 4))];
  return nodes[draw(nodes.size())];
}

const RandomDag::Node *RandomDag::pickWhere(bool isExact) {
  for (unsigned attempt = 0; attempt < 10; ++attempt)
    if (const Node &node = pick(); node.isExact == isExact)
      return &node;
  return nullptr;
}

RandomDag::Node RandomDag::spread(const Node &node,
                                  const std::vector<bool> &has) {
  if (has == node.has)
    return node;
  Type type = tensorType(node.value).getElementType();
  Value wide = c.broadcast(letters(node.has) + "->" + letters(has), node.value,
                           typeOf(node.space, has, type));
  return {wide, node.space, has, node.isExact};
}

std::vector<bool> RandomDag::joined(const Node &a, const Node &b) const {
  std::vector<bool> has = a.has;
  for (size_t dim = 0; dim < has.size(); ++dim)
    has[dim] = a.has[dim] || b.has[dim];
  return has;
}

void RandomDag::addOp() {
  struct Choice {
    unsigned weight;
    void (RandomDag::*add)();
  };
  static constexpr Choice kChoices[] = {
      {24, &RandomDag::addUnary},     {26, &RandomDag::addBinary},
      {16, &RandomDag::addReduction}, {12, &RandomDag::addNormalisation},
      {8, &RandomDag::addColumnSum},  {5, &RandomDag::addBroadcast},
      {6, &RandomDag::addSelect},     {5, &RandomDag::addConversion},
      {8, &RandomDag::addMove},       {3, &RandomDag::addIota},
      {4, &RandomDag::addEmbedding},  {12, &RandomDag::addGate},
  };
  unsigned total = 0;
  for (const Choice &choice : kChoices)
    total += choice.weight;
  unsigned number = draw(total);
  for (const Choice &choice : kChoices) {
    if (number < choice.weight)
      return (this->*choice.add)();
    number -= choice.weight;
  }
}

// Every form keeps values small and slopes about 1 or less, so that rounding
// does not grow along a chain.
void RandomDag::addUnary() {
  Node node = pick();
  Value x = node.value;
  auto positive = [&] { return c.add(c.abs(x), 1); };
  switch (draw(13)) {
  case 0:
    return push(c.negate(x), node, node.isExact);
  case 1:
    return push(c.abs(x), node, node.isExact);
  case 2:
    return push(c.exp(c.negate(c.abs(x))), node, false);
  case 3:
    return push(c.log(positive()), node, false);
  case 4:
    return push(c.tanh(x), node, false);
  case 5:
    return push(c.erf(x), node, false);
  case 6:
    return push(c.sqrt(positive()), node, false);
  case 7:
    return push(c.rsqrt(positive()), node, false);
  case 8:
    return push(c.cos(x), node, false);
  case 9:
    return push(c.sin(x), node, false);
  case 10:
    return push(ReluOp::create(builder, c.loc, x), node, node.isExact);
  case 11:
    return push(
        GeluOp::create(builder, c.loc, x.getType(), x, /*tanh=*/chance(50)),
        node, false);
  default:
    if (tensorType(x).getRank() == 0)
      return push(c.mul(x, 0.75), node, false);
    return push(SoftmaxOp::create(builder, c.loc, x), node, false);
  }
}

void RandomDag::addBinary() {
  Node a = pick(), b = pick();
  for (unsigned attempt = 0; attempt < 5 && b.space != a.space; ++attempt)
    b = pick();
  if (b.space != a.space)
    b = a;
  std::vector<bool> has = joined(a, b);
  a = spread(a, has);
  b = spread(b, has);
  bool isExact = a.isExact && b.isExact;
  Value x = a.value, y = b.value;
  switch (draw(6)) {
  case 0:
    return push(c.mul(c.add(x, y), 0.5), a, false);
  case 1:
    return push(c.mul(c.sub(x, y), 0.5), a, false);
  case 2:
    return push(c.mul(c.sin(x), c.cos(y)), a, false);
  case 3:
    return push(c.div(x, c.add(c.abs(y), 1)), a, false);
  case 4:
    return push(c.maximum(x, y), a, isExact);
  default:
    return push(c.minimum(x, y), a, isExact);
  }
}

// Over rows (the last dimensions), columns (the first) or any others.
void RandomDag::addReduction() { addReductionOf(pick()); }

void RandomDag::addReductionOf(Node node) {
  unsigned rank = llvm::count(node.has, true);
  if (rank == 0)
    return addUnary();
  std::vector<bool> lost(rank);
  unsigned count = 1 + draw(rank);
  unsigned kind = draw(3);
  for (unsigned i = 0; i < rank; ++i)
    lost[i] = kind == 0   ? i >= rank - count
              : kind == 1 ? i < count
                          : chance(50);
  if (llvm::count(lost, true) == 0)
    lost.back() = true;
  Node result = node;
  int64_t points = 1;
  unsigned position = 0;
  for (size_t dim = 0; dim < node.has.size(); ++dim)
    if (node.has[dim] && lost[position++]) {
      result.has[dim] = false;
      points *= spaces[node.space].sizes[dim];
    }
  std::string equation = letters(node.has) + "->" + letters(result.has);
  if (chance(35))
    return push(c.max(equation, node.value), result, node.isExact);
  push(c.mul(c.sum(equation, node.value), 1.0 / double(points)), result, false);
}

// A reduction whose result goes back to every point that it came from, as in a
// norm or a softmax; several in a row need several passes.
void RandomDag::addNormalisation() {
  size_t before = nodes.size();
  addReduction();
  if (nodes.size() == before)
    return;
  Node reduced = nodes.back();
  for (size_t index = before; index-- > 0;) {
    Node node = nodes[index];
    if (node.space != reduced.space || joined(node, reduced) != node.has)
      continue;
    Node wide = spread(reduced, node.has);
    push(c.mul(c.sub(node.value, wide.value), 0.5), node, false);
    if (chance(50))
      continue;
    return;
  }
}

// A value without the first dimensions that scales one that has them, and a
// penalty on it: the same value is broadcast and reduced, to any rank.
void RandomDag::addGate() {
  Node node = pick();
  std::vector<size_t> dims;
  for (size_t dim = 0; dim < node.has.size(); ++dim)
    if (node.has[dim])
      dims.push_back(dim);
  if (dims.empty())
    return addUnary();
  Node gate = node;
  size_t lost = draw(dims.size());
  int64_t points = 1;
  for (size_t i = 0; i < lost; ++i) {
    gate.has[dims[i]] = false;
    points *= spaces[node.space].sizes[dims[i]];
  }
  gate.value = node.value;
  if (lost > 0)
    gate.value =
        c.mul(c.sum(letters(node.has) + "->" + letters(gate.has), node.value),
              1.0 / double(points));
  for (const Node &other : nodes) // Preferably not reduced.
    if (other.space == gate.space && other.has == gate.has && chance(50))
      gate.value = other.value;
  gate.value = c.tanh(gate.value);
  push(gate.value, gate, false);
  addReductionOf(gate);
  std::vector<bool> all(node.has.size(), true);
  Node wide = spread(chance(50) ? node : gate, all);
  wide.value = c.mul(spread(gate, all).value, c.sin(wide.value));
  push(wide.value, wide, false);
  addReductionOf(wide);
}

// Centred rows and their sum over all rows, as in the gradient of a norm: one
// kernel that reduces along rows and over them.
void RandomDag::addColumnSum() {
  Node node = pick();
  std::vector<size_t> dims;
  for (size_t dim = 0; dim < node.has.size(); ++dim)
    if (node.has[dim])
      dims.push_back(dim);
  if (dims.size() < 2)
    return addReduction();
  size_t split = 1 + draw(dims.size() - 1);
  Node rows = node, columns = node;
  int64_t rowCount = 1, columnCount = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    (i < split ? columns : rows).has[dims[i]] = false;
    (i < split ? rowCount : columnCount) *= spaces[node.space].sizes[dims[i]];
  }
  std::string all = letters(node.has) + "->";
  rows.value = c.mul(c.sum(all + letters(rows.has), node.value),
                     1.0 / double(columnCount));
  Value centred = c.sub(node.value, spread(rows, node.has).value);
  push(c.mul(c.sum(all + letters(columns.has), c.mul(centred, centred)),
             1.0 / double(rowCount)),
       columns, false);
  push(c.mul(centred, 0.5), node, false);
}

void RandomDag::addBroadcast() {
  Node node = pick();
  std::vector<bool> has = node.has;
  for (size_t dim = 0; dim < has.size(); ++dim)
    has[dim] = has[dim] || chance(60);
  Node wide = spread(node, has);
  push(wide.value, wide, wide.isExact);
}

void RandomDag::addSelect() {
  const Node *found = pickWhere(/*isExact=*/true);
  if (!found)
    return addBinary();
  Node condition = *found, a = pick();
  if (a.space != condition.space)
    a = condition;
  std::vector<bool> has = joined(condition, a);
  condition = spread(condition, has);
  a = spread(a, has);
  auto predicate = static_cast<Predicate>(draw(6));
  Value holds = c.compare(predicate, condition.value, 0.125);
  if (chance(30))
    return push(c.convert(holds, element), a, true);
  push(c.select(holds, a.value, c.mul(condition.value, 0.5)), a, false);
}

void RandomDag::addConversion() {
  const Node *found = pickWhere(/*isExact=*/true);
  if (!found)
    return addUnary();
  Node node = *found;
  Type other;
  switch (draw(3)) {
  case 0:
    other = isF32() ? Type(builder.getF64Type()) : builder.getF32Type();
    break;
  case 1:
    other = builder.getI32Type();
    break;
  default:
    other = builder.getI64Type();
    break;
  }
  // Not by the composer, which leaves out a conversion to the same type: the
  // widened function must have the same values.
  auto convert = [&](Value x, Type to) -> Value {
    return ConvertOp::create(builder, c.loc, tensorType(x).clone(to), x);
  };
  push(convert(convert(node.value, other), element), node, true);
}

// Into another space and on from there, or back.
void RandomDag::addMove() {
  Node node = pick();
  if (spaces.size() == 1)
    return addBroadcast();
  Node whole =
      spread(node, std::vector<bool>(spaces[node.space].sizes.size(), true));
  unsigned space = node.space == 0 ? 1 + draw(spaces.size() - 1) : 0;
  const Space &one = spaces[node.space == 0 ? space : node.space];
  Node target;
  target.space = space;
  target.has.assign(spaces[space].sizes.size(), true);
  if (one.transposed.empty())
    return push(c.reshape(whole.value, spaces[space].sizes), target,
                node.isExact);
  // The equation names the dimensions of the first space; back, sides change.
  auto [from, to] = StringRef(one.transposed).split("->");
  std::string back = (to + "->" + from).str();
  push(c.transpose(space == 0 ? back : one.transposed, whole.value), target,
       node.isExact);
}

void RandomDag::addIota() {
  unsigned space = draw(spaces.size());
  const std::vector<int64_t> &sizes = spaces[space].sizes;
  if (sizes.empty())
    return addUnary();
  Node node;
  node.space = space;
  node.has.assign(sizes.size(), false);
  size_t dim = draw(sizes.size());
  node.has[dim] = true;
  Value count = c.convert(c.iota(sizes[dim]), element);
  push(c.div(count, double(sizes[dim])), node, false);
}

void RandomDag::addEmbedding() {
  unsigned space = draw(spaces.size());
  const std::vector<int64_t> &sizes = spaces[space].sizes;
  if (sizes.empty())
    return addUnary();
  Node ids;
  ids.space = space;
  ids.has.assign(sizes.size(), true);
  ids.has.back() = false;
  for (size_t dim = 0; dim + 1 < sizes.size(); ++dim)
    ids.has[dim] = chance(80);
  int64_t rows = 1 + draw(9);
  Type idType = chance(70) ? builder.getI32Type() : builder.getI64Type();
  addArgument(ids, idType, 0, rows);
  Value idValue = function.getArguments().back();
  auto table = RankedTensorType::get({rows, sizes.back()}, element);
  unsigned index = function.getNumArguments();
  (void)function.insertArgument(index, table, builder.getDictionaryAttr({}),
                                c.loc);
  arguments.push_back({table.getNumElements(), -2, 2, false});
  Node result = ids;
  result.has.back() = true;
  Value rowsOf =
      EmbeddingOp::create(builder, c.loc, typeOf(space, result.has, element),
                          function.getArgument(index), idValue,
                          /*first=*/Value());
  push(rowsOf, result, true);
}

// The last value and a few others, so that some values are read both by a
// kernel and by the caller.
void RandomDag::finish() {
  SmallVector<Value> results = {nodes.back().value};
  unsigned more = draw(4);
  for (unsigned i = 0; i < more; ++i) {
    Value value = nodes[draw(nodes.size())].value;
    if (!isa<BlockArgument>(value) && !llvm::is_contained(results, value))
      results.push_back(value);
  }
  func::ReturnOp::create(builder, c.loc, results);
  function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                           ValueRange(results).getTypes()));
}

} // namespace kiln::test
