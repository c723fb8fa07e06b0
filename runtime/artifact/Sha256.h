// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one hash of Kiln: sections, checkpoints, compile keys.
#ifndef KILN_RUNTIME_ARTIFACT_SHA256_H
#define KILN_RUNTIME_ARTIFACT_SHA256_H

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace kiln {

using Digest = std::array<unsigned char, 32>;

/// SHA-256 of bytes that come in pieces. `finish` is called once, at the end.
class Sha256 {
public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  Digest finish();

private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st *)> context_;
};

/// Lower-case hexadecimal.
std::string printDigest(const Digest &digest);

Digest sha256Digest(std::span<const std::byte> bytes);
std::string sha256(std::string_view bytes);

/// SHA-256 of a regular file's contents; nothing when it cannot be read.
std::optional<std::string> sha256OfFile(const std::string &path);

} // namespace kiln

#endif // KILN_RUNTIME_ARTIFACT_SHA256_H
