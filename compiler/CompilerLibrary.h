// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_COMPILER_LIBRARY_H
#define KILN_COMPILER_COMPILER_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One compilation. Plain C: it crosses into a library that is opened with
/// dlopen. All strings belong to the caller.
struct KilnCompileRequest {
  /// sizeof(KilnCompileRequest) as the caller knows it; a library that knows
  /// another size refuses the request.
  size_t size;
  /// Config file as the user named it, and the `key.path=value` arguments; they
  /// have been checked by the command, and loading them again cannot fail
  /// unless the file has changed.
  const char *configPath;
  const char *const *overrides;
  size_t overrideCount;
  /// Where the artifact goes, and what messages call it. A temporary file of
  /// the command's, which is written in place; the command publishes it.
  const char *outputPath;
  const char *outputName;
  /// Folder for the IR after each pass, or null. It exists.
  const char *dumpFolder;
  /// Folder of the cache that kernels are kept in, or null.
  const char *cacheFolder;
  /// Not zero: generate the unoptimised program that tests compare with.
  int32_t isReference;
  /// Called with the name of each activity when it begins, or null.
  void (*showActivity)(const char *name);
  /// Called before the first pass, or null: with `context` and the model, the
  /// index of an artifact that has variables, inputs and public names only. A
  /// text is the message with which the model is rejected; null accepts it.
  const char *(*checkModel)(const void *context, const uint8_t *model,
                            size_t bytes);
  const void *context;
};

/// Compiles; prints errors to stderr and nothing to stdout. Returns the exit
/// code of the command: 0 done, 2 config, 3 no plan fits, 4 model rejected,
/// 5 I/O, 70 internal error.
int kilnCompile(const struct KilnCompileRequest *request);

#ifdef __cplusplus
}
#endif

#endif // KILN_COMPILER_COMPILER_LIBRARY_H
