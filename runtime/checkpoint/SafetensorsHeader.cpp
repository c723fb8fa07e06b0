// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/SafetensorsHeader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace kiln {

namespace {

using Json = nlohmann::json;

constexpr size_t maximumName = 4096;
constexpr size_t maximumRank = 16;

/// Takes the header event by event, so that only wanted fields are stored, and
/// the first fault ends the reading.
class HeaderReader : public nlohmann::json_sax<Json> {
public:
  SafetensorsHeader header;
  std::string fault;

  bool null() override { return stray("null"); }
  bool boolean(bool) override { return stray("a boolean"); }
  bool number_float(double, const std::string &) override {
    return stray("a number that is no integer");
  }
  bool number_integer(int64_t) override { return stray("a negative number"); }
  bool binary(Json::binary_t &) override { return stray("bytes"); }

  bool number_unsigned(uint64_t number) override {
    if (!numbers_)
      return stray("a number");
    if (number > static_cast<uint64_t>(INT64_MAX))
      return fail(where() + "has the number " + std::to_string(number));
    if (numbers_->size() == maximumRank)
      return fail(where() + "has more than " + std::to_string(maximumRank) +
                  " numbers in '" + field_ + "'");
    numbers_->push_back(static_cast<int64_t>(number));
    return true;
  }

  bool string(std::string &text) override {
    if (depth_ != 2 || numbers_)
      return stray("a string");
    if (isMetadata_) {
      header.metadata[field_] = std::move(text);
      return true;
    }
    if (field_ != "dtype")
      return stray("a string");
    if (dtypeBytes(text) == 0)
      return fail(where() + "has the unknown dtype '" + text + "'");
    entry_.dtype = std::move(text);
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 2 || numbers_)
      return stray("an object");
    ++depth_;
    fields_.clear();
    return true;
  }

  bool key(std::string &name) override {
    if (depth_ == 1)
      return beginEntry(name);
    if (!fields_.insert(name).second)
      return fail(where() + "has '" + name + "' twice");
    if (!isMetadata_ && name != "dtype" && name != "shape" &&
        name != "data_offsets")
      return fail(where() + "has the unknown field '" + name + "'");
    field_ = name;
    return true;
  }

  bool end_object() override {
    --depth_;
    return depth_ == 0 || isMetadata_ || endEntry();
  }

  bool start_array(size_t) override {
    bool isShape = field_ == "shape", isPlace = field_ == "data_offsets";
    if (depth_ != 2 || isMetadata_ || numbers_ || !(isShape || isPlace))
      return stray("an array");
    numbers_ = isShape ? &entry_.shape : &offsets_;
    return true;
  }

  bool end_array() override {
    numbers_ = nullptr;
    return true;
  }

  bool parse_error(size_t position, const std::string &,
                   const Json::exception &) override {
    return fail("header is not JSON at byte " + std::to_string(position));
  }

private:
  bool fail(std::string message) {
    if (fault.empty())
      fault = std::move(message);
    return false;
  }

  std::string where() const {
    return depth_ < 2    ? "header "
           : isMetadata_ ? "metadata "
                         : "tensor '" + entry_.name + "' ";
  }

  bool stray(const char *what) {
    return fail(where() + "has " + what + " where none belongs");
  }

  bool beginEntry(const std::string &name) {
    isMetadata_ = name == "__metadata__";
    if (name.size() > maximumName)
      return fail("a tensor's name has " + std::to_string(name.size()) +
                  " bytes, wanted at most " + std::to_string(maximumName));
    if (name.empty() || name.find('\0') != name.npos)
      return fail("a tensor's name is empty or holds a zero byte");
    if (!names_.insert(name).second)
      return fail("tensor '" + name + "' occurs twice");
    entry_ = {};
    entry_.name = name;
    offsets_.clear();
    field_.clear();
    return true;
  }

  bool endEntry() {
    ++depth_; // For messages: the entry is still the subject.
    if (fields_.size() != 3)
      return fail(where() + "lacks dtype, shape or data_offsets");
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1])
      return fail(where() + "has no proper data_offsets");
    uint64_t wanted = dtypeBytes(entry_.dtype);
    // A zero makes the product zero, whatever the other sizes are.
    bool isEmpty = std::count(entry_.shape.begin(), entry_.shape.end(), 0) != 0;
    for (int64_t size : entry_.shape)
      if (!isEmpty &&
          __builtin_mul_overflow(wanted, static_cast<uint64_t>(size), &wanted))
        return fail(where() + "has a shape that overflows");
    entry_.begin = static_cast<uint64_t>(offsets_[0]);
    entry_.end = static_cast<uint64_t>(offsets_[1]);
    if (entry_.bytes() != (isEmpty ? 0 : wanted))
      return fail(where() + "has " + std::to_string(entry_.bytes()) +
                  " bytes, " + entry_.describe() + " wants " +
                  std::to_string(isEmpty ? 0 : wanted));
    --depth_;
    header.entries.push_back(std::move(entry_));
    return true;
  }

  int depth_ = 0;
  bool isMetadata_ = false;
  std::set<std::string> names_, fields_;
  std::string field_;
  Safetensors::Entry entry_{};
  std::vector<int64_t> offsets_;
  std::vector<int64_t> *numbers_ = nullptr; // The array being read.
};

/// No hole, no overlap, no bytes after the last tensor.
std::string findGap(std::vector<Safetensors::Entry> &entries,
                    uint64_t dataBytes) {
  std::sort(entries.begin(), entries.end(), [](const auto &a, const auto &b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const Safetensors::Entry &entry : entries) {
    if (entry.begin != end)
      return "tensor '" + entry.name + "' begins at byte " +
             std::to_string(entry.begin) + ", wanted " + std::to_string(end);
    end = entry.end;
  }
  return end == dataBytes
             ? ""
             : "tensors end at byte " + std::to_string(end) +
                   ", the file's data at " + std::to_string(dataBytes) +
                   " (truncated or damaged)";
}

} // namespace

Expected<SafetensorsHeader> parseSafetensorsHeader(std::string_view text,
                                                   uint64_t dataBytes) {
  HeaderReader reader;
  if (!text.starts_with('{'))
    reader.fault = "header does not begin with '{' (not safetensors)";
  else
    (void)Json::sax_parse(text, &reader);
  if (reader.fault.empty())
    reader.fault = findGap(reader.header.entries, dataBytes);
  if (!reader.fault.empty())
    return Status(Code::inputRejected, reader.fault);
  std::sort(reader.header.entries.begin(), reader.header.entries.end(),
            [](const auto &a, const auto &b) { return a.name < b.name; });
  return std::move(reader.header);
}

} // namespace kiln
