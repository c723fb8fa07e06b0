// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PIPELINE_PASSES_TD
#define KILN_COMPILER_PIPELINE_PASSES_TD

include "mlir/Pass/PassBase.td"

def VerifyContract : Pass<"kiln-verify-contract", "mlir::ModuleOp"> {
  let summary = "Check what holds between two parts of the pipeline";
  let description = [{
    After the `step` no loss is left and the update assigns every parameter. After `shard` shards tile their tensors and
    collectives are over axes of the mesh. After `fuse` every op of a phase is in a kernel or ties kernels together, and every
    size is static. After `lower` commands name what is there, kernels run where their buffers lie, and each collective is waited for once.
    After `plan` every kernel is planned and every buffer lies in the arena.
  }];
  let options = [Option<"after", "after", "std::string", "\"step\"", "step, shard, fuse, lower or plan">];
}

def ApplyPrecision : Pass<"kiln-apply-precision", "mlir::ModuleOp"> {
  let summary = "Give parameters, operands, activations and gradients the element types of a precision policy";
  let description = [{
    In functions marked `kiln.loss` or `kiln.evaluation`, which are written in f32, each value that an op makes per sample is rounded
    to the type `activations` where it is made, and that is what its readers and the backward pass see. Ops that multiply
    (Accumulating) take operands of the type `compute`. All other ops still compute in f32; conversions stand where
    types meet.

    Arguments that are parameters get the type `parameters`. If that is not the type `master`, each parameter has a variable of role
    `working` beside it, which the argument reads. Their gradients have the type `gradients`. The types of messages
    and moments are left to later passes, in the module's `kiln.precision`.

    With `all` every f32 becomes that type: f64, for tests.
  }];
  let dependentDialects = ["::kiln::KilnDialect"];
  let options = [
    Option<"parameters", "parameters", "std::string", "\"f32\"", "f32, bf16 or f16, as all types are">,
    Option<"compute", "compute", "std::string", "\"f32\"", "of operands that are multiplied">,
    Option<"activations", "activations", "std::string", "\"f32\"", "of values made per sample">,
    Option<"gradients", "gradients", "std::string", "\"f32\"", "of gradients of parameters">,
    Option<"messages", "messages", "std::string", "\"f32\"", "of terms of sums over devices">,
    Option<"master", "master", "std::string", "\"f32\"", "of parameters as they are updated; none: as they are read">,
    Option<"moments", "moments", "std::string", "\"f32\"", "of the optimizer">,
    Option<"lossScale", "loss-scale", "double", "0", "initial factor of the loss that is differentiated; 0: none">,
    Option<"growthSteps", "growth-steps", "int64_t", "2000", "finite steps in a row after which the factor doubles">,
    Option<"all", "all", "std::string", "\"\"", "f64: every f32 becomes it">,
  ];
}

def Differentiate : Pass<"kiln-differentiate", "mlir::ModuleOp"> {
  let summary = "Append the gradients of the loss to each function marked kiln.loss";
  let description = [{
    A function that returns totals, and perhaps denominators (results marked `kiln.denominator`), returns in
    addition the gradient of the sum of its totals with respect to every float argument that is neither a
    `kiln.input` nor a `kiln.state`. Results marked `kiln.running` are not part of the loss. With denominators each total is weighed by a scalar argument marked `kiln.scale`
    that the pass adds: one over the denominator of the global batch.

    With `recompute` the gradients of a layer (ops of the same `kiln.layer`) read clones of its ops instead of what
    they made, so that only what leaves a layer is kept: all that they read (`full`), or what ops marked
    `kiln.attention` make (`attention`).
  }];
  let dependentDialects = ["::kiln::KilnDialect"];
  let options = [Option<"recompute", "recompute", "std::string", "\"none\"", "none, attention or full">];
}

def BuildStep : Pass<"kiln-build-step", "mlir::ModuleOp"> {
  let summary = "Make the training step of a differentiated function: prologue, accumulate, update";
  let description = [{
    The learning rate is computed from variables of role `setting`, which the runtime writes: no program depends on its
    values.
  }];
  let dependentDialects = ["::kiln::KilnDialect"];
  let options = [
    Option<"optimizer", "optimizer", "std::string", "\"adamw\"", "adam, adamw or sgd">,
    Option<"beta1", "beta1", "double", "0.9", "decay of the first moment">,
    Option<"beta2", "beta2", "double", "0.999", "decay of the second moment">,
    Option<"epsilon", "epsilon", "double", "1e-8", "added to the root of the second moment">,
    Option<"weightDecay", "weight-decay", "double", "0.0", "for variables that decay">,
    Option<"momentum", "momentum", "double", "0.0", "of sgd">,
    Option<"clipNorm", "clip-norm", "double", "0.0", "greatest global norm of the gradient; 0 is none">,
  ];
}

def Shard : Pass<"kiln-shard", "mlir::ModuleOp"> {
  let summary = "Turn the program on full tensors into one device's program with collectives";
  let description = [{
    The mesh has the axes `data` and `tensor`. The batch is cut over `data`; variables over `tensor` as their
    `sharding` says; each op is cut along the factor that moves the fewest bytes. `zero` cuts the optimizer's state over
    `data` as well: 1 its moments, 2 the sums of gradients, 3 the parameters, which are gathered where they are used.

    With `explain` a remark at each op names the cut that was taken and, in notes, those that were not, each with the
    bytes that it moves and the preferences that decide between equals.
  }];
  let dependentDialects = ["::kiln::KilnDialect"];
  let options = [
    Option<"data", "data", "int64_t", "1", "devices along the axis data">,
    Option<"tensor", "tensor", "int64_t", "1", "devices along the axis tensor">,
    Option<"zero", "zero", "int64_t", "0", "ZeRO stage, 0 to 3">,
    Option<"sequenceParallel", "sequence-parallel", "bool", "true",
           "norms and the residual stream are cut along the sequence over tensor">,
    Option<"explain", "explain", "bool", "false", "say in remarks why each op is cut as it is">,
  ];
}

def MergeCollectives : Pass<"kiln-merge-collectives", "mlir::ModuleOp"> {
  let summary = "Make few large collectives of many small ones, and start them early";
  let description = [{
    A bucket holds collectives of one layer, or of no layer, up to `bucket-bytes`. So the buckets of a layer do not
    depend on how many layers there are, and those of all inner layers are alike.
  }];
  let dependentDialects = ["::kiln::KilnDialect"];
  let options = [Option<"bucketBytes", "bucket-bytes", "int64_t", "4194304", "most of one collective, unless one tensor has more">];
}

def OffloadOptimizer : Pass<"kiln-offload-optimizer", "mlir::ModuleOp"> {
  let summary = "Keep the optimizer's moments in the host's memory and update them there";
  let description = [{
    Gradients, or what is made of them, are transferred to the host; what the moments say of a parameter is transferred
    back and applied on the device. Every op of the update runs on one side, and computes what it computed before.
  }];
  let dependentDialects = ["::kiln::KilnDialect"];
}

def SplitImages : Pass<"kiln-split-images", "mlir::ModuleOp"> {
  let summary = "Make an image of the step for every share of the batch that a replica has";
  let description = [{
    Replicas with the same share of the batch run the same image. The module becomes a list of modules, one per share
    in the order of first occurrence, each with the attribute `kiln.share`.
  }];
  let options = [ListOption<"shares", "shares", "int64_t", "samples of each replica">];
}

def ScheduleStep : Pass<"kiln-schedule-step", "mlir::ModuleOp"> {
  let summary = "Give the batch its size and turn steps and functions into programs of phases";
  let description = [{
    The micro-batches of a step run in a phase that repeats; a smaller last one is a phase of its own. If one
    micro-batch holds the full batch, the step is a single phase. A replica that has fewer micro-batches than another
    takes part in the collectives of the missing ones with zeros.
  }];
  let dependentDialects = ["::kiln::KilnDialect"];
  let options = [
    Option<"batch", "batch", "int64_t", "1", "samples in one step, unless the module's kiln.share says">,
    Option<"microBatch", "micro-batch", "int64_t", "0", "samples at once; 0 is the full batch">,
    Option<"microBatches", "micro-batches", "int64_t", "0",
           "micro-batches of the replica that has most; 0 is as many as the batch has">,
  ];
}

def DecomposeComposites : Pass<"kiln-decompose-composites", "mlir::ModuleOp"> {
  let summary = "Replace composite ops by their definitions";
  let description = [{
    Ops stay whole for which the devices' backend has a joint form. The reference has none.
  }];
  let constructor = "kiln::createDecomposeComposites()";
  let dependentDialects = ["::kiln::KilnDialect"];
  let options = [Option<"reference", "reference", "bool", "false", "decompose as for the reference backend">];
}

def FuseKernels : Pass<"kiln-fuse-kernels", "mlir::ModuleOp"> {
  let summary = "Group elementwise, broadcast and reduction ops into kernels";
  let constructor = "kiln::createFuseKernels()";
  let dependentDialects = ["::kiln::KilnDialect"];
  let options = [Option<"reference", "reference", "bool", "false", "every op is a kernel of its own, as the reference backend wants">];
}

def LowerToExec : Pass<"kiln-lower-to-exec", "mlir::ModuleOp"> {
  let summary = "Turn programs on tensors into commands on buffers";
  let dependentDialects = ["::kiln::KilnDialect", "::kiln::exec::ExecDialect"];
}

def PlanKernels : Pass<"kiln-plan-kernels", "mlir::ModuleOp"> {
  let summary = "Ask the backends how each kernel will run: stages, items, scratch";
  let description = [{
    The backend of a kernel's memory space fixes its family, tuning parameters, stages and scratch. Launches get a buffer
    for the scratch. No code is generated.
  }];
  let constructor = "kiln::createPlanKernels()";
  let dependentDialects = ["::kiln::exec::ExecDialect"];
}

def GenerateCode : Pass<"kiln-generate-code", "mlir::ModuleOp"> {
  let summary = "Generate the code of all planned kernels";
  let description = [{
    Runs on the module of all images: each backend generates the kernels of its memory space, once for those of the same
    name. The code goes beside the module; without a place for it, it is checked and dropped.
  }];
  let constructor = "kiln::createGenerateCode()";
  let dependentDialects = ["::kiln::exec::ExecDialect"];
}

def PlanMemory : Pass<"kiln-plan-memory", "mlir::ModuleOp"> {
  let summary = "Give every buffer its place in the arena";
  let constructor = "kiln::createPlanMemory()";
  let dependentDialects = ["::kiln::exec::ExecDialect"];
  let options = [Option<"redZones", "red-zones", "bool", "false",
                        "no two buffers share bytes, and red zones lie between them, which the runtime checks">];
}

#endif // KILN_COMPILER_PIPELINE_PASSES_TD
