// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/artifact/Sha256.h"

#include <filesystem>
#include <fstream>
#include <openssl/evp.h>
#include <vector>

namespace kiln {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
}

void Sha256::add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

Digest Sha256::finish() {
  Digest digest;
  EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
  return digest;
}

std::string printDigest(const Digest &digest) {
  std::string text;
  for (unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

Digest sha256Digest(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

std::string sha256(std::string_view bytes) {
  return printDigest(sha256Digest(std::as_bytes(std::span(bytes))));
}

std::optional<std::string> sha256OfFile(const std::string &path) {
  std::error_code error;
  // To open a FIFO would block until somebody writes to it.
  if (!std::filesystem::is_regular_file(path, error))
    return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return std::nullopt;
  Sha256 hash;
  std::vector<char> buffer(1 << 18);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())),
         file.gcount() > 0)
    hash.add(std::as_bytes(
        std::span(buffer.data(), static_cast<size_t>(file.gcount()))));
  if (file.bad())
    return std::nullopt;
  return printDigest(hash.finish());
}

} // namespace kiln
