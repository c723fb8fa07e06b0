// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/WeightVocabulary.h"
#include "runtime/QuoteForShell.h"

#include <filesystem>

namespace kiln {

namespace fs = std::filesystem;

static constexpr const char *hashKey = "vocabulary_sha256";

std::string vocabularyPathOf(const std::string &weights) {
  return weights + "." + vocabularyFileName;
}

std::string findVocabulary(const std::string &weights,
                           const std::string &hash) {
  for (const std::string &path :
       {fs::path(weights).replace_filename(vocabularyFileName).string(),
        vocabularyPathOf(weights)})
    if (sha256OfFile(path) == hash)
      return path;
  return "";
}

std::map<std::string, std::string>
describeWeights(const std::string &vocabulary) {
  // Libraries ask for the format of the framework that the names belong to.
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (!vocabulary.empty())
    metadata[hashKey] = sha256(vocabulary);
  return metadata;
}

std::string vocabularyHashOf(const Safetensors &weights) {
  auto found = weights.metadata().find(hashKey);
  return found == weights.metadata().end() ? "" : found->second;
}

Status checkVocabulary(const std::string &weights, const std::string &found,
                       const std::string &vocabulary) {
  if (found.empty() || vocabulary.empty() || found == sha256(vocabulary))
    return Status();
  std::string path = findVocabulary(weights, found);
  std::string remedy =
      path.empty() ? "give the vocabulary of the weights as data.vocabulary"
                   : "data.vocabulary=" + quoteForShell(path) +
                         " takes the words of the weights";
  return Status(Code::inputRejected,
                weights +
                    ": was trained with other words than those of the "
                    "data (SHA-256 of its vocabulary is " +
                    found + ", wanted " + sha256(vocabulary) + "); " + remedy);
}

} // namespace kiln
