// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tuning parameter changes how fast a kernel is, never what it computes: for
// every parameter that any family has, other values give the same bits.
// Parameters are found in the plans, so that a new one is tested without a
// change here.
#include "compiler/Compile.h"
#include "test/compiler/CompiledModule.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;

namespace kiln::test {
namespace {

struct Sample {
  const char *family;
  const char *arguments, *body;
};

// Sizes that leave tails everywhere and need several blocks.
const Sample samples[] = {
    {"gemm", "%x: tensor<70x600xf32>, %y: tensor<600x90xf32>",
     R"(%r = kiln.contract "mk,kn->mn" %x, %y : tensor<70x600xf32>, tensor<600x90xf32> -> tensor<70x90xf32>
        kiln.yield %r : tensor<70x90xf32>)"},
    {"gemm", "%x: tensor<300x70xf32>, %y: tensor<90x300xf32>",
     R"(%r = kiln.contract "km,nk->mn" %x, %y : tensor<300x70xf32>, tensor<90x300xf32> -> tensor<70x90xf32>
        kiln.yield %r : tensor<70x90xf32>)"},
    {"rows", "%x: tensor<70x331xf32>, %y: tensor<70x331xf32>",
     R"(%p = kiln.mul %x, %y : tensor<70x331xf32>
        %e = kiln.exp %p : tensor<70x331xf32>
        %s = kiln.sum "mn->m" %e : tensor<70x331xf32> -> tensor<70xf32>
        %c = kiln.sum "mn->n" %e : tensor<70x331xf32> -> tensor<331xf32>
        kiln.yield %e, %s, %c : tensor<70x331xf32>, tensor<70xf32>, tensor<331xf32>)"},
    {"rows", "%x: tensor<50001xf32>",
     R"(%s = kiln.sum "n->" %x : tensor<50001xf32> -> tensor<f32>
        kiln.yield %s : tensor<f32>)"},
    {"rows", "%x: tensor<50001xf32>, %y: tensor<50001xf32>",
     R"(%s = kiln.add %x, %y : tensor<50001xf32>
        kiln.yield %s : tensor<50001xf32>)"},
    {"general", "%x: tensor<9000xf32>, %y: tensor<21xf32>",
     R"(%r = kiln.concatenate %x, %y dimension 0 : (tensor<9000xf32>, tensor<21xf32>) -> tensor<9021xf32>
        kiln.yield %r : tensor<9021xf32>)"},
    {"general", "%i: tensor<40xi32>, %g: tensor<40x70xf32>",
     R"(%r = kiln.embedding_grad %i, %g : (tensor<40xi32>, tensor<40x70xf32>) -> tensor<4x70xf32>
        kiln.yield %r : tensor<4x70xf32>)"},
    {"attention", "%x: tensor<1x200x3x2x24xf32>",
     R"(%r, %l = kiln.attention causal %x scale 2.0e-01 : (tensor<1x200x3x2x24xf32>) -> (tensor<1x200x2x24xf32>, tensor<1x2x200xf32>)
        kiln.yield %r, %l : tensor<1x200x2x24xf32>, tensor<1x2x200xf32>)"},
    {"attention_gradient",
     "%x: tensor<1x200x3x2x24xf32>, %r: tensor<1x200x2x24xf32>, "
     "%l: tensor<1x2x200xf32>, %g: tensor<1x200x2x24xf32>",
     R"(%d = kiln.attention_grad causal %x, %r, %l, %g scale 2.0e-01 : (tensor<1x200x3x2x24xf32>, tensor<1x200x2x24xf32>, tensor<1x2x200xf32>, tensor<1x200x2x24xf32>) -> tensor<1x200x3x2x24xf32>
        kiln.yield %d : tensor<1x200x3x2x24xf32>)"},
    {"head",
     "%x: tensor<1x600x40xf32>, %w: tensor<500x40xf32>, %i: tensor<1x600xi32>",
     R"(%t, %c, %dx, %dw = kiln.head_loss %x, %w, %i : (tensor<1x600x40xf32>, tensor<500x40xf32>, tensor<1x600xi32>) -> (tensor<f32>, tensor<f32>, tensor<1x600x40xf32>, tensor<500x40xf32>)
        kiln.yield %t, %c, %dx, %dw : tensor<f32>, tensor<f32>, tensor<1x600x40xf32>, tensor<500x40xf32>)"},
    {"convolution", "%x: tensor<3x13x11x9xf32>, %w: tensor<21x9x3x3xf32>",
     R"(%r = kiln.convolution %x, %w strides [2, 1] padding [1, 1] : (tensor<3x13x11x9xf32>, tensor<21x9x3x3xf32>) -> tensor<3x7x11x21xf32>
        kiln.yield %r : tensor<3x7x11x21xf32>)"},
    {"convolution", "%g: tensor<3x7x11x21xf32>, %w: tensor<21x9x3x3xf32>",
     R"(%r = kiln.convolution_grad_input %g, %w strides [2, 1] padding [1, 1] : (tensor<3x7x11x21xf32>, tensor<21x9x3x3xf32>) -> tensor<3x13x11x9xf32>
        kiln.yield %r : tensor<3x13x11x9xf32>)"},
    {"filter_gradient", "%x: tensor<9x13x11x19xf32>, %g: tensor<9x7x11x21xf32>",
     R"(%r = kiln.convolution_grad_weight %x, %g strides [2, 1] padding [1, 1] : (tensor<9x13x11x19xf32>, tensor<9x7x11x21xf32>) -> tensor<21x19x3x3xf32>
        kiln.yield %r : tensor<21x19x3x3xf32>)"},
    {"max_pool", "%x: tensor<3x13x11x37xf32>",
     R"(%r = kiln.max_pool %x window [3, 2] strides [2, 2] padding [1, 1] : (tensor<3x13x11x37xf32>) -> tensor<3x7x6x37xf32>
        kiln.yield %r : tensor<3x7x6x37xf32>)"},
};

std::string printKernel(const Sample &sample) {
  StringRef yielded = StringRef(sample.body).split("kiln.yield").second;
  size_t operands = StringRef(sample.arguments).count('%') + yielded.count('%');
  std::string alignments;
  for (size_t i = 0; i < operands; ++i)
    alignments += i ? ", 4" : "4";
  return "exec.kernel @k alignments [" + alignments + "] overlaps [] {\n^bb0(" +
         sample.arguments + "):\n" + sample.body +
         "\n} {scratch_bytes = 0 : i64}\n";
}

/// A shared object in memory.
class Library {
public:
  explicit Library(const std::string &bytes) : file(memfd_create("kernel", 0)) {
    EXPECT_EQ(write(file, bytes.data(), bytes.size()), ssize_t(bytes.size()));
    handle =
        dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW);
    EXPECT_TRUE(handle) << dlerror();
  }
  ~Library() {
    dlclose(handle);
    close(file);
  }
  void *find(const std::string &symbol) const {
    return dlsym(handle, symbol.c_str());
  }

private:
  int file;
  void *handle;
};

using Bytes = std::vector<std::byte>;

/// Numbers that depend on the type and the position only.
Bytes makeInput(RankedTensorType type, unsigned number) {
  Bytes bytes(getByteSize(type));
  std::mt19937 random(number);
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    if (type.getElementType().isInteger(32)) {
      int32_t value = int32_t(random() % 4);
      std::memcpy(&bytes[i * 4], &value, 4);
    } else {
      float value = std::uniform_real_distribution<float>(-1, 1)(random);
      std::memcpy(&bytes[i * 4], &value, 4);
    }
  return bytes;
}

/// Plans the kernel with this record, generates it and runs it on one worker.
std::vector<Bytes> run(exec::KernelOp kernel, const TuningRecord &record) {
  const Backend &backend = getDefaultBackends().getDevice();
  FailureOr<KernelPlan> plan = backend.plan(kernel, record);
  EXPECT_TRUE(succeeded(plan));
  setPlan(kernel, *plan);
  backend.prepare(*kernel.getContext());
  FailureOr<GeneratedCode> code = backend.generate({kernel}, nullptr);
  EXPECT_TRUE(succeeded(code));
  Library library(code->sections.front().bytes);

  std::vector<Bytes> operands;
  Block &body = kernel.getBody().front();
  for (BlockArgument input : body.getArguments())
    operands.push_back(makeInput(cast<RankedTensorType>(input.getType()),
                                 input.getArgNumber()));
  size_t inputs = operands.size();
  for (Type output : body.getTerminator()->getOperandTypes())
    operands.emplace_back(getByteSize(output), std::byte(0xff));
  // Scratch is NaN until it is written.
  operands.emplace_back(plan->scratchBytes + 64, std::byte(0xff));
  std::vector<void *> buffers;
  for (Bytes &operand : operands)
    buffers.push_back(operand.data());
  auto scratch = reinterpret_cast<uintptr_t>(buffers.back());
  buffers.back() = reinterpret_cast<void *>((scratch + 63) & ~uintptr_t(63));
  for (const KernelStage &stage : plan->stages) {
    using Function = void (*)(void *const *, int64_t, int64_t, int64_t);
    auto function = reinterpret_cast<Function>(library.find(stage.symbol));
    function(buffers.data(), 0, stage.items, 0);
  }
  operands.pop_back();
  operands.erase(operands.begin(), operands.begin() + inputs);
  return operands;
}

TEST(Tuning, ChangesNoBitOfAnyResult) {
  std::set<std::string> families;
  for (const Sample &sample : samples) {
    CompileContext context;
    auto module = parseText(context.mlir, printKernel(sample));
    ASSERT_TRUE(module);
    auto kernel = *module->getOps<exec::KernelOp>().begin();
    FailureOr<KernelPlan> plan =
        getDefaultBackends().getDevice().plan(kernel, /*tuning=*/{});
    ASSERT_TRUE(succeeded(plan));
    EXPECT_EQ(plan->family, sample.family);
    families.insert(plan->family);
    std::vector<Bytes> wanted = run(kernel, {});
    for (const auto &[name, value] : plan->tuning) {
      std::set<int64_t> others = {std::max<int64_t>(1, value / 2),
                                  value ? 2 * value : 24};
      others.erase(value);
      for (int64_t other : others)
        EXPECT_TRUE(run(kernel, {{name, other}}) == wanted)
            << sample.family << ": " << name << "=" << other << " instead of "
            << value;
    }
  }
  EXPECT_EQ(families.size(), 9u) << "a family is without a sample";
}

TEST(Tuning, RefusesAParameterThatTheFamilyDoesNotHave) {
  CompileContext context;
  auto module = parseText(context.mlir, printKernel(samples[0]));
  auto kernel = *module->getOps<exec::KernelOp>().begin();
  std::string message;
  ScopedDiagnosticHandler handler(&context.mlir, [&](Diagnostic &diagnostic) {
    message += diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(
      getDefaultBackends().getDevice().plan(kernel, {{"tile_colour", 3}})));
  EXPECT_NE(message.find("'tile_colour', which kernels of the family 'gemm' do "
                         "not have; they have tile_rows=6"),
            std::string::npos)
      << message;
}

} // namespace
} // namespace kiln::test
