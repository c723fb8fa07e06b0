// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/artifact/ForgedIndex.h"

#include <flatbuffers/reflection.h>

#include <cstring>
#include <limits>
#include <set>

namespace kiln::test {

using reflection::BaseType;

static bool isScalar(BaseType type) {
  return type >= reflection::UType && type <= reflection::Double;
}

static uint64_t readBits(const void *bytes, BaseType type) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, flatbuffers::GetTypeSize(type));
  return bits;
}

std::unique_ptr<IndexNode> IndexNode::clone() const {
  auto copy = std::make_unique<IndexNode>();
  copy->type = type;
  copy->element = element;
  copy->object = object;
  copy->bits = bits;
  copy->text = text;
  for (const std::unique_ptr<IndexNode> &child : children)
    copy->children.push_back(child ? child->clone() : nullptr);
  return copy;
}

static std::unique_ptr<IndexNode> makeNode(BaseType type) {
  auto node = std::make_unique<IndexNode>();
  node->type = type;
  return node;
}

static std::unique_ptr<IndexNode> makeScalar(const void *bytes, BaseType type) {
  auto node = makeNode(type);
  node->bits = readBits(bytes, type);
  return node;
}

static std::unique_ptr<IndexNode> makeText(const flatbuffers::String &string) {
  auto node = makeNode(reflection::String);
  node->text = string.str();
  return node;
}

std::unique_ptr<IndexNode>
ForgedIndex::readStruct(const uint8_t *bytes,
                        const reflection::Object &object) const {
  auto node = makeNode(reflection::Obj);
  node->object = &object;
  for (const reflection::Field *field : *object.fields()) {
    const uint8_t *place = bytes + field->offset();
    BaseType type = field->type()->base_type();
    node->children.push_back(
        isScalar(type)
            ? makeScalar(place, type)
            : readStruct(place, *schema_.objects()->Get(static_cast<uint32_t>(
                                    field->type()->index()))));
  }
  return node;
}

std::unique_ptr<IndexNode>
ForgedIndex::readTable(const flatbuffers::Table &table,
                       const reflection::Object &object) const {
  auto node = makeNode(reflection::Obj);
  node->object = &object;
  for (const reflection::Field *field : *object.fields())
    node->children.push_back(readField(table, object, *field));
  return node;
}

std::unique_ptr<IndexNode>
ForgedIndex::readField(const flatbuffers::Table &table,
                       const reflection::Object &object,
                       const reflection::Field &field) const {
  BaseType type = field.type()->base_type();
  const uint8_t *place = table.GetAddressOf(field.offset());
  // A scalar that is not stored has its default.
  if (isScalar(type)) {
    if (place)
      return makeScalar(place, type);
    auto node = makeNode(type);
    node->bits = static_cast<uint64_t>(field.default_integer());
    return node;
  }
  if (!place)
    return nullptr;
  auto objectAt = [&](int32_t number) -> const reflection::Object & {
    return *schema_.objects()->Get(static_cast<uint32_t>(number));
  };
  if (type == reflection::Obj && objectAt(field.type()->index()).is_struct())
    return readStruct(place, objectAt(field.type()->index()));
  const uint8_t *target =
      place + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(place);
  if (type == reflection::String)
    return makeText(*reinterpret_cast<const flatbuffers::String *>(target));
  if (type == reflection::Vector)
    return readVector(target, *field.type());
  const auto &nested = *reinterpret_cast<const flatbuffers::Table *>(target);
  if (type == reflection::Obj)
    return readTable(nested, objectAt(field.type()->index()));
  const reflection::Field *kind = object.fields()->LookupByKey(
      (field.name()->str() + flatbuffers::UnionTypeFieldSuffix()).c_str());
  const reflection::EnumVal *value =
      schema_.enums()
          ->Get(static_cast<uint32_t>(field.type()->index()))
          ->values()
          ->LookupByKey(table.GetField<uint8_t>(kind->offset(), 0));
  return readTable(nested, objectAt(value->union_type()->index()));
}

std::unique_ptr<IndexNode>
ForgedIndex::readVector(const uint8_t *bytes,
                        const reflection::Type &type) const {
  auto node = makeNode(reflection::Vector);
  node->element = type.element();
  node->object =
      type.element() == reflection::Obj
          ? schema_.objects()->Get(static_cast<uint32_t>(type.index()))
          : nullptr;
  bool isStruct = node->object && node->object->is_struct();
  size_t size = isStruct ? static_cast<size_t>(node->object->bytesize())
                         : flatbuffers::GetTypeSize(type.element());
  auto count = flatbuffers::ReadScalar<flatbuffers::uoffset_t>(bytes);
  bytes += sizeof(flatbuffers::uoffset_t);
  for (uint32_t i = 0; i < count; ++i, bytes += size) {
    if (isStruct) {
      node->children.push_back(readStruct(bytes, *node->object));
    } else if (isScalar(node->element)) {
      node->children.push_back(makeScalar(bytes, node->element));
    } else {
      const uint8_t *target =
          bytes + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(bytes);
      node->children.push_back(
          node->object
              ? readTable(*reinterpret_cast<const flatbuffers::Table *>(target),
                          *node->object)
              : makeText(
                    *reinterpret_cast<const flatbuffers::String *>(target)));
    }
  }
  return node;
}

namespace {

/// Writes a tree, whether or not it makes sense.
class Writer {
public:
  std::vector<std::byte> finish(const IndexNode &root) {
    builder_.ForceDefaults(true);
    builder_.Finish(flatbuffers::Offset<void>(write(root)), "KILN");
    std::span<const std::byte> bytes = std::as_bytes(
        std::span(builder_.GetBufferPointer(), builder_.GetSize()));
    return {bytes.begin(), bytes.end()};
  }

private:
  /// Offset of a table, a vector or a string.
  flatbuffers::uoffset_t write(const IndexNode &node) {
    if (node.type == reflection::String)
      return builder_.CreateString(node.text).o;
    return node.type == reflection::Vector ? writeVector(node)
                                           : writeTable(node);
  }

  static void pack(const IndexNode &node, uint8_t *target) {
    for (uint32_t i = 0; i < node.children.size(); ++i) {
      const reflection::Field &field = *node.object->fields()->Get(i);
      if (isScalar(field.type()->base_type()))
        std::memcpy(target + field.offset(), &node.children[i]->bits,
                    flatbuffers::GetTypeSize(field.type()->base_type()));
      else
        pack(*node.children[i], target + field.offset());
    }
  }

  flatbuffers::uoffset_t writeVector(const IndexNode &node) {
    bool isStruct = node.object && node.object->is_struct();
    size_t count = node.children.size();
    if (!isStruct && !isScalar(node.element)) {
      std::vector<flatbuffers::Offset<void>> offsets;
      for (const std::unique_ptr<IndexNode> &child : node.children)
        offsets.emplace_back(write(*child));
      return builder_.CreateVector(offsets).o;
    }
    size_t size = isStruct ? static_cast<size_t>(node.object->bytesize())
                           : flatbuffers::GetTypeSize(node.element);
    size_t align =
        isStruct ? static_cast<size_t>(node.object->minalign()) : size;
    std::vector<uint8_t> bytes(count * size);
    for (size_t i = 0; i < count; ++i)
      if (isStruct)
        pack(*node.children[i], bytes.data() + i * size);
      else
        std::memcpy(bytes.data() + i * size, &node.children[i]->bits, size);
    builder_.StartVector(bytes.size() / align, align);
    builder_.PushBytes(bytes.data(), bytes.size());
    return builder_.EndVector(count);
  }

  flatbuffers::uoffset_t writeTable(const IndexNode &node) {
    std::vector<flatbuffers::uoffset_t> offsets(node.children.size());
    for (size_t i = 0; i < node.children.size(); ++i)
      if (const IndexNode *child = node.children[i].get();
          child && !isScalar(child->type) && !isStruct(*child))
        offsets[i] = write(*child);
    flatbuffers::uoffset_t start = builder_.StartTable();
    for (uint32_t i = 0; i < node.children.size(); ++i)
      if (node.children[i])
        addField(*node.children[i], node.object->fields()->Get(i)->offset(),
                 offsets[i]);
    return builder_.EndTable(start);
  }

  static bool isStruct(const IndexNode &node) {
    return node.type == reflection::Obj && node.object->is_struct();
  }

  void addField(const IndexNode &node, uint16_t place,
                flatbuffers::uoffset_t offset) {
    if (isStruct(node)) {
      std::vector<uint8_t> bytes(static_cast<size_t>(node.object->bytesize()));
      pack(node, bytes.data());
      builder_.Align(static_cast<size_t>(node.object->minalign()));
      builder_.PushBytes(bytes.data(), bytes.size());
      builder_.AddStructOffset(place, builder_.GetSize());
    } else if (!isScalar(node.type)) {
      builder_.AddOffset(place, flatbuffers::Offset<void>(offset));
    } else {
      switch (flatbuffers::GetTypeSize(node.type)) {
      case 1:
        return builder_.AddElement(place, static_cast<uint8_t>(node.bits));
      case 2:
        return builder_.AddElement(place, static_cast<uint16_t>(node.bits));
      case 4:
        return builder_.AddElement(place, static_cast<uint32_t>(node.bits));
      default:
        return builder_.AddElement(place, node.bits);
      }
    }
  }

  flatbuffers::FlatBufferBuilder builder_;
};

} // namespace

ForgedIndex::ForgedIndex(std::span<const std::byte> schema,
                         std::span<const std::byte> index)
    : schema_(*reflection::GetSchema(schema.data())),
      root_(readTable(*flatbuffers::GetRoot<flatbuffers::Table>(index.data()),
                      *schema_.root_table())) {
  Path path;
  collect(*root_, path);
}

std::unique_ptr<IndexNode> *ForgedIndex::find(std::unique_ptr<IndexNode> &root,
                                              const Path &path) {
  std::unique_ptr<IndexNode> *node = &root;
  for (size_t step : path) {
    if (!*node || step >= (*node)->children.size())
      return nullptr;
    node = &(*node)->children[step];
  }
  return *node ? node : nullptr;
}

std::string ForgedIndex::describe(size_t change) const {
  return print(change, true) + ": " + changes_[change].name;
}

std::string ForgedIndex::print(size_t change, bool isNumbered) const {
  std::string text;
  const IndexNode *node = root_.get();
  for (size_t step : changes_[change].path) {
    if (node->type != reflection::Vector)
      text += "." + node->object->fields()
                        ->Get(static_cast<uint32_t>(step))
                        ->name()
                        ->str();
    else if (isNumbered)
      text += "[" + std::to_string(step) + "]";
    node = node->children[step].get();
  }
  return text;
}

std::vector<std::byte>
ForgedIndex::forge(std::span<const size_t> changes) const {
  std::unique_ptr<IndexNode> root = root_->clone();
  for (size_t number : changes)
    if (auto *node = find(root, changes_[number].path))
      changes_[number].make(*root, *node);
  return Writer().finish(*root);
}

void ForgedIndex::collect(const IndexNode &node, Path &path) {
  if (isScalar(node.type))
    addScalars(node, path);
  else if (node.type == reflection::String)
    addTexts(path);
  else if (node.type == reflection::Vector)
    addLists(node, path);
  // Elements of vectors are dropped there; fields of structs cannot be.
  bool isTable = node.object && !node.object->is_struct();
  for (size_t i = 0; i < node.children.size(); ++i)
    if (node.children[i]) {
      path.push_back(i);
      if (node.type == reflection::Obj && isTable)
        changes_.push_back(
            {path, "absent", [](IndexNode &, std::unique_ptr<IndexNode> &gone) {
               gone = nullptr;
             }});
      collect(*node.children[i], path);
      path.pop_back();
    }
}

void ForgedIndex::add(const Path &path, std::string name,
                      std::function<void(IndexNode &)> make) {
  changes_.push_back(
      {path, std::move(name),
       [make = std::move(make)](IndexNode &, std::unique_ptr<IndexNode> &node) {
         make(*node);
       }});
}

/// Gives all scalars of a type that have one value another.
static void replaceAll(IndexNode &node, BaseType type, uint64_t before,
                       uint64_t after) {
  if (node.type == type && node.bits == before)
    node.bits = after;
  for (std::unique_ptr<IndexNode> &child : node.children)
    if (child)
      replaceAll(*child, type, before, after);
}

void ForgedIndex::addScalars(const IndexNode &node, const Path &path) {
  size_t width = flatbuffers::GetTypeSize(node.type) * 8;
  uint64_t most = ~uint64_t{0} >> (64 - width),
           sign = uint64_t{1} << (width - 1);
  std::set<uint64_t> values = {0,
                               1,
                               2,
                               (node.bits + 1) & most,
                               (node.bits - 1) & most,
                               node.bits * 2 & most,
                               (node.bits + 4) & most,
                               node.bits / 2,
                               (uint64_t{1} << width / 2) & most,
                               sign,
                               sign - 1,
                               most,
                               most - 3};
  if (node.type == reflection::Double)
    for (double value :
         {-1.0, 1e300, -1e300, 1e-300, std::numeric_limits<double>::quiet_NaN(),
          std::numeric_limits<double>::infinity()})
      values.insert(readBits(&value, reflection::Double));
  values.erase(node.bits);
  for (uint64_t value : values) {
    std::string name =
        std::to_string(node.bits) + " becomes " + std::to_string(value);
    add(path, name, [value](IndexNode &scalar) { scalar.bits = value; });
    // So that sizes that must agree still do.
    if (width == 64 && node.bits != 0)
      changes_.push_back(
          {path, name + " everywhere",
           [value](IndexNode &root, std::unique_ptr<IndexNode> &scalar) {
             replaceAll(root, scalar->type, scalar->bits, value);
           }});
  }
}

void ForgedIndex::addTexts(const Path &path) {
  using namespace std::string_literals;
  const std::pair<const char *, std::string> texts[] = {
      {"empty", ""},
      {"not UTF-8", "\xff\xfe\x80"},
      {"with a zero", "a\0b"s},
      {"a path", "../../x"},
      {"a line", "a\nb\t%s%n"},
      {"long", std::string(100'000, 'x')},
      {"of the C library", "abort"},
      {"a kind of data", "none"},
      {"another kind of data", "tokens"},
      {"data in documents", "documents"},
      {"data in lines", "tsv"},
      {"data in images", "idx"},
      {"another device", "dry"},
      {"of another process", "/proc/self/mem"}};
  for (const auto &[name, text] : texts)
    add(path, std::string("becomes ") + name,
        [text = text](IndexNode &string) { string.text = text; });
}

void ForgedIndex::addLists(const IndexNode &node, const Path &path) {
  add(path, "emptied", [](IndexNode &list) { list.children.clear(); });
  if (node.children.empty())
    return;
  add(path, "without its first element", [](IndexNode &list) {
    if (!list.children.empty())
      list.children.erase(list.children.begin());
  });
  add(path, "without its last element", [](IndexNode &list) {
    if (!list.children.empty())
      list.children.pop_back();
  });
  for (size_t copies : {size_t{1}, size_t{200}})
    add(path, "with " + std::to_string(copies) + " more of the last",
        [copies](IndexNode &list) {
          for (size_t i = 0; i < copies && !list.children.empty(); ++i)
            list.children.push_back(list.children.back()->clone());
        });
  add(path, "with the last in place of the first", [](IndexNode &list) {
    if (list.children.size() > 1)
      list.children.front() = list.children.back()->clone();
  });
  add(path, "turned around", [](IndexNode &list) {
    std::reverse(list.children.begin(), list.children.end());
  });
}

} // namespace kiln::test
