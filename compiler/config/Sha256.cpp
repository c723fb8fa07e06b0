// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Sha256.h"

#include <fstream>
#include <memory>
#include <openssl/evp.h>
#include <vector>

namespace kiln {

namespace {

class Digest {
public:
  Digest() : context(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  }

  void add(const char *data, size_t size) {
    EVP_DigestUpdate(context.get(), data, size);
  }

  std::string finish() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context.get(), bytes, &size);
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
      text += "0123456789abcdef"[bytes[i] >> 4];
      text += "0123456789abcdef"[bytes[i] & 15];
    }
    return text;
  }

private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX *)> context;
};

} // namespace

std::string sha256(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.finish();
}

std::optional<std::string> sha256OfFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return std::nullopt;
  Digest digest;
  std::vector<char> buffer(1 << 18);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())),
         file.gcount() > 0)
    digest.add(buffer.data(), static_cast<size_t>(file.gcount()));
  if (file.bad())
    return std::nullopt;
  return digest.finish();
}

} // namespace kiln
