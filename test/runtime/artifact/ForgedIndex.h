// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Changes to an index that its schema permits. All are found by the schema, so
// that a field is covered from the day it is added.
#ifndef KILN_TEST_RUNTIME_ARTIFACT_FORGEDINDEX_H
#define KILN_TEST_RUNTIME_ARTIFACT_FORGEDINDEX_H

#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/reflection_generated.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace kiln::test {

/// A value of a flatbuffer. The schema must outlive it.
struct IndexNode {
  reflection::BaseType type = reflection::None;
  reflection::BaseType element = reflection::None; // Of a vector.
  const reflection::Object *object = nullptr;      // Of a table or struct.
  uint64_t bits = 0;                               // Of a scalar.
  std::string text;
  /// Fields in the order of the object's, or elements; null: absent.
  std::vector<std::unique_ptr<IndexNode>> children;

  std::unique_ptr<IndexNode> clone() const;
};

/// The tree of one index, and every way to change one value of it.
class ForgedIndex {
public:
  /// `schema` is a binary schema; it must outlive this object.
  ForgedIndex(std::span<const std::byte> schema,
              std::span<const std::byte> index);

  /// The number of changes.
  size_t changes() const { return changes_.size(); }
  /// The place and kind of a change, for messages.
  std::string describe(size_t change) const;
  /// Its place without the numbers of elements.
  std::string fieldOf(size_t change) const { return print(change, false); }
  /// The index with these changes, made one after another. A change of a value
  /// that an earlier one has removed does nothing.
  std::vector<std::byte> forge(std::span<const size_t> changes) const;

private:
  /// Steps from the root: indices of children.
  using Path = std::vector<size_t>;
  struct Change {
    Path path;
    std::string name;
    std::function<void(IndexNode &root, std::unique_ptr<IndexNode> &node)> make;
  };

  std::unique_ptr<IndexNode> readTable(const flatbuffers::Table &table,
                                       const reflection::Object &object) const;
  std::unique_ptr<IndexNode> readStruct(const uint8_t *bytes,
                                        const reflection::Object &object) const;
  std::unique_ptr<IndexNode> readField(const flatbuffers::Table &table,
                                       const reflection::Object &object,
                                       const reflection::Field &field) const;
  std::unique_ptr<IndexNode> readVector(const uint8_t *bytes,
                                        const reflection::Type &type) const;
  void collect(const IndexNode &node, Path &path);
  void add(const Path &path, std::string name,
           std::function<void(IndexNode &)> make);
  void addScalars(const IndexNode &node, const Path &path);
  void addTexts(const Path &path);
  void addLists(const IndexNode &node, const Path &path);
  std::string print(size_t change, bool isNumbered) const;
  static std::unique_ptr<IndexNode> *find(std::unique_ptr<IndexNode> &root,
                                          const Path &path);

  const reflection::Schema &schema_;
  std::unique_ptr<IndexNode> root_;
  std::vector<Change> changes_;
};

} // namespace kiln::test

#endif // KILN_TEST_RUNTIME_ARTIFACT_FORGEDINDEX_H
