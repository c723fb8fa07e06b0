// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of an embedding belong to words, so weights name the vocabulary that
// they were trained with, and it is kept beside them.
#ifndef KILN_RUNTIME_CHECKPOINT_WEIGHTVOCABULARY_H
#define KILN_RUNTIME_CHECKPOINT_WEIGHTVOCABULARY_H

#include "runtime/checkpoint/Safetensors.h"

namespace kiln {

/// In the folder of a run and in that of a checkpoint.
inline constexpr const char *vocabularyFileName = "vocabulary.txt";

/// Path of the vocabulary of exported weights, which no others share:
/// a.safetensors.vocabulary.txt beside a.safetensors.
std::string vocabularyPathOf(const std::string &weights);

/// Path of the vocabulary with this hash beside weights, exported or in a
/// checkpoint; empty if there is none.
std::string findVocabulary(const std::string &weights, const std::string &hash);

/// The metadata of a file of weights. The vocabulary is the text of its file;
/// empty for a model without words.
std::map<std::string, std::string>
describeWeights(const std::string &vocabulary);

/// SHA-256 of the vocabulary that the metadata name; empty if they name none.
std::string vocabularyHashOf(const Safetensors &weights);

/// Whether weights, whose vocabulary has the hash `found`, fit this vocabulary:
/// `inputRejected` if the words differ. Nothing is known if one of them is
/// empty.
Status checkVocabulary(const std::string &weights, const std::string &found,
                       const std::string &vocabulary);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_WEIGHTVOCABULARY_H
