// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The comparison of plans can fail: each of these faults, put into the step of
// a device, moves its losses away from those of one device.
#include "dialects/kiln/Composer.h"
#include "test/compiler/shard/PlanCase.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace kiln::test {
namespace {

Zoo &zoo() {
  static Zoo shared;
  return shared;
}

/// Calls `change` on ops of a kind until it reports a change.
template <typename Op>
bool changeFirst(Region &region, llvm::function_ref<bool(Op)> change) {
  return region
      .walk([&](Op op) {
        return change(op) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

StepOp getStep(ModuleOp module) { return *module.getOps<StepOp>().begin(); }

bool goesOver(ArrayAttr axes, StringRef axis) {
  return llvm::any_of(axes, [&](Attribute each) {
    return cast<StringAttr>(each).getValue() == axis;
  });
}

/// Erases the first op of a kind that is wanted.
template <typename Op>
bool eraseFirst(Region &region, llvm::function_ref<bool(Op)> isWanted) {
  Op found;
  changeFirst<Op>(region, [&](Op op) {
    if (isWanted(op))
      found = op;
    return bool(found);
  });
  if (found)
    found.erase();
  return bool(found);
}

using Mutation = std::function<bool(StepOp)>;

struct Fault {
  const char *name;
  Model model;
  Plan plan;
  Mutation mutate;
};

Plan meshOf(int64_t data, int64_t tensor, int64_t zero = 0,
            bool isSequenceParallel = true) {
  Plan plan;
  plan.mesh = {data, tensor};
  plan.zero = zero;
  plan.isSequenceParallel = isSequenceParallel;
  return plan;
}

/// Leaves partial sums: every device continues with its own.
bool dropReduction(Region &region, StringRef axis, Combine combine,
                   llvm::function_ref<bool(Value)> isWanted) {
  return changeFirst<AllReduceOp>(region, [&](AllReduceOp op) {
    if (op.getCombine() != combine || !goesOver(op.getAxes(), axis))
      return false;
    for (auto [operand, result] :
         llvm::zip_equal(op.getOperands(), op.getResults()))
      if (isWanted(operand)) {
        result.replaceAllUsesWith(operand);
        return true;
      }
    return false;
  });
}

bool isAny(Value) { return true; }
bool isMatrix(Value value) { return tensorType(value).getRank() > 1; }
bool isScalar(Value value) { return tensorType(value).getRank() == 0; }

Value roundToBf16(OpBuilder &builder, Value value) {
  Composer c(builder, value.getLoc());
  return c.convertLike(c.convert(value, builder.getBF16Type()), value);
}

/// Drops the masks that set padding to zero.
bool dropMask(Region &region) {
  bool isDone = false;
  region.walk([&](SelectOp op) {
    auto spread = op.getRhs().getDefiningOp<BroadcastOp>();
    auto fill =
        spread ? spread.getOperand().getDefiningOp<ConstantOp>() : ConstantOp();
    auto mask = op.getCondition().getDefiningOp<BroadcastOp>();
    if (!fill || !mask || tensorType(mask.getOperand()).getRank() != 1 ||
        !fill.getValue().isZero())
      return;
    op.getResult().replaceAllUsesWith(op.getLhs());
    isDone = true;
  });
  return isDone;
}

const Fault faults[] = {
    {"a sum over tensor is dropped",
     {"gpt"},
     meshOf(1, 2, 0, false),
     [](StepOp step) {
       return dropReduction(step.getAccumulate(), "tensor", Combine::sum,
                            isMatrix);
     }},
    {"a gradient is not summed over replicas",
     {"mlp"},
     meshOf(2, 1),
     [](StepOp step) {
       return dropReduction(step.getUpdate(), "data", Combine::sum, isMatrix);
     }},
    {"the maximum of the logits is a device's own",
     {"gpt"},
     meshOf(1, 2),
     [](StepOp step) {
       return dropReduction(step.getAccumulate(), "tensor", Combine::max,
                            isAny);
     }},
    {"the mean of the replicas' means",
     {"bert"},
     meshOf(2, 1),
     [](StepOp step) {
       return changeFirst<AllReduceOp>(step.getPrologue(), [](AllReduceOp op) {
         OpBuilder builder(op);
         Composer c(builder, op.getLoc());
         op.getResult(0).replaceAllUsesWith(c.mul(op.getOperand(0), 2));
         return true;
       });
     }},
    {"dropout has local instead of global indices",
     {"gpt"},
     meshOf(1, 2),
     [](StepOp step) {
       return changeFirst<DropoutOp>(step.getAccumulate(), [](DropoutOp op) {
         if (!op.getElements())
           return false;
         op.getElementsMutable().clear();
         return true;
       });
     }},
    {"padding of the vocabulary enters the sum",
     {"gpt"},
     meshOf(1, 2),
     [](StepOp step) { return dropMask(step.getAccumulate()); }},
    {"padding of a biased vocabulary enters the sum",
     {"bert"},
     meshOf(1, 2),
     [](StepOp step) { return dropMask(step.getAccumulate()); }},
    {"the gradient of a tied table counts twice",
     {"gpt"},
     meshOf(2, 1),
     [](StepOp step) {
       return changeFirst<EmbeddingGradOp>(
           step.getAccumulate(), [](EmbeddingGradOp op) {
             OpBuilder builder = OpBuilder(op->getNextNode());
             Composer c(builder, op.getLoc());
             Value twice = c.add(op.getResult(), op.getResult());
             op.getResult().replaceAllUsesExcept(twice, twice.getDefiningOp());
             return true;
           });
     }},
    {"the norm that clips is the replica's own",
     {"mlp"},
     meshOf(2, 1, 1),
     [](StepOp step) {
       bool isDone = false;
       // All but the first, which is the loss.
       unsigned count = 0;
       for (auto op :
            llvm::to_vector(step.getUpdate().front().getOps<AllReduceOp>()))
         for (auto [operand, result] :
              llvm::zip_equal(op.getOperands(), op.getResults()))
           if (isScalar(operand) && count++ > 0) {
             result.replaceAllUsesWith(operand);
             isDone = true;
           }
       return isDone;
     }},
    {"an updated parameter is not gathered",
     {"mlp"},
     meshOf(2, 1, 1),
     [](StepOp step) {
       return changeFirst<AssignOp>(step.getUpdate(), [](AssignOp op) {
         auto reshape = op.getValue().getDefiningOp<ReshapeOp>();
         Value value = reshape ? reshape.getOperand() : op.getValue();
         if (!value.getDefiningOp<AllGatherOp>())
           return false;
         OpBuilder builder(op);
         op.getValueMutable().assign(ReadOp::create(
             builder, op.getLoc(), op.getValue().getType(), op.getVariable()));
         return true;
       });
     }},
    {"rows of the table are off by one",
     {"gpt"},
     meshOf(1, 2),
     [](StepOp step) {
       return changeFirst<EmbeddingOp>(
           step.getAccumulate(), [](EmbeddingOp op) {
             if (!op.getFirst())
               return false;
             OpBuilder builder(op);
             Composer c(builder, op.getLoc());
             op.getFirstMutable().assign(c.add(op.getFirst(), 1));
             return true;
           });
     }},
    {"a reduce-scatter does not add partial sums",
     {"gpt"},
     meshOf(1, 2),
     [](StepOp step) {
       return changeFirst<ReduceScatterOp>(
           step.getAccumulate(), [](ReduceScatterOp op) {
             OpBuilder builder(op);
             auto slice = AllSliceOp::create(
                 builder, op.getLoc(), op.getResultTypes(), op.getOperands(),
                 op.getAxes(), op.getDimensions(), op.getBlocks(),
                 op.getUnits());
             op.replaceAllUsesWith(slice.getResults());
             op.erase();
             return true;
           });
     }},
    {"a gradient is summed over devices that replicate it",
     {"mlp"},
     meshOf(2, 2),
     [](StepOp step) {
       return changeFirst<AllReduceOp>(step.getUpdate(), [](AllReduceOp op) {
         if (goesOver(op.getAxes(), "tensor") ||
             llvm::all_of(op.getOperands(), isScalar))
           return false;
         OpBuilder builder(op);
         op.setAxesAttr(builder.getStrArrayAttr({"data", "tensor"}));
         return true;
       });
     }},
    {"the loss of a replica is left out",
     {"classifier"},
     meshOf(3, 1),
     [](StepOp step) {
       return dropReduction(step.getUpdate(), "data", Combine::sum, isScalar);
     }},
    {"an all-gather returns another parameter",
     {"bert"},
     meshOf(2, 1, 3),
     [](StepOp step) {
       // A matrix is taken for another of its shape that was gathered before.
       SmallVector<std::pair<Value, Value>> seen; // Shard, full tensor.
       return changeFirst<AllGatherOp>(
           step.getAccumulate(), [&](AllGatherOp op) {
             for (auto [part, whole] :
                  llvm::zip_equal(op.getOperands(), op.getResults())) {
               for (auto [other, stale] : seen)
                 if (whole.getType() == stale.getType() && part != other &&
                     !whole.use_empty()) {
                   whole.replaceAllUsesWith(stale);
                   return true;
                 }
               if (tensorType(whole).getNumElements() > 200)
                 seen.push_back({part, whole});
             }
             return false;
           });
     }},
    {"a working copy is stale",
     {"mlp", 0, "bf16"},
     meshOf(2, 1, 1),
     [](StepOp step) {
       return eraseFirst<AssignOp>(step.getUpdate(), [&](AssignOp op) {
         auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(
             op, op.getVariableAttr());
         return variable.getRole() == Role::working;
       });
     }},
    {"the sum of the losses is taken in bf16",
     {"mlp", 0, "f32"},
     meshOf(3, 1),
     [](StepOp step) {
       return changeFirst<AllReduceOp>(step.getUpdate(), [](AllReduceOp op) {
         for (auto [number, operand] : llvm::enumerate(op.getOperands()))
           if (isScalar(operand)) {
             OpBuilder builder(op);
             op.setOperand(number, roundToBf16(builder, operand));
             builder.setInsertionPointAfter(op);
             Value sum = op.getResult(number),
                   rounded = roundToBf16(builder, sum);
             sum.replaceAllUsesExcept(
                 rounded,
                 rounded.getDefiningOp()->getOperand(0).getDefiningOp());
             return true;
           }
         return false;
       });
     }},
    {"the loss scale is applied twice",
     {"mlp", 0, "f16"},
     meshOf(2, 1),
     [](StepOp step) {
       return changeFirst<ReadOp>(step.getAccumulate(), [](ReadOp op) {
         if (op.getVariable() != "loss_scale")
           return false;
         OpBuilder builder = OpBuilder(op->getNextNode());
         Composer c(builder, op.getLoc());
         Value twice = c.mul(op.getResult(), op.getResult());
         op.getResult().replaceAllUsesExcept(twice, twice.getDefiningOp());
         return true;
       });
     }},
};

class Mutations : public testing::TestWithParam<size_t> {};

TEST_P(Mutations, AreNoticed) {
  const Fault &fault = faults[GetParam()];
  SCOPED_TRACE(fault.name);
  bool isMutated = false;
  Outcome broken = zoo().train(fault.model, fault.plan, [&](ModuleOp module) {
    isMutated = fault.mutate(getStep(module));
  });
  ASSERT_TRUE(broken.refused.empty()) << broken.refused;
  EXPECT_TRUE(isMutated);
  double bound = fault.model.bound();
  EXPECT_GT(zoo().compare(fault.model, broken), bound);
  // The fault causes the deviation, not the plan.
  static std::map<std::string, double> sound;
  auto [found, isNew] =
      sound.try_emplace(fault.model.print() + fault.plan.name());
  if (isNew)
    found->second =
        zoo().compare(fault.model, zoo().train(fault.model, fault.plan));
  EXPECT_LE(found->second, bound);
}

INSTANTIATE_TEST_SUITE_P(Faults, Mutations,
                         testing::Range<size_t>(0, std::size(faults)));

} // namespace
} // namespace kiln::test
