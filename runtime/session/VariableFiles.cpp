// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/VariableFiles.h"
#include "runtime/checkpoint/CompareTensors.h"
#include "runtime/checkpoint/ConvertElements.h"
#include "runtime/metrics/DropNanSign.h"

#include <algorithm>
#include <cstring>

namespace kiln {

namespace {

using Entry = Safetensors::Entry;

constexpr uint64_t pieceBytes = uint64_t{1} << 22;

TensorFacts factsOf(const artifact::Variable &variable) {
  return {variable.name()->str(),
          std::string(dtypeOf(variable.element_type())),
          {variable.shape()->begin(), variable.shape()->end()}};
}

std::string quote(const std::string &name) { return "'" + name + "'"; }

/// All faults of a file, one line each.
class Differences {
public:
  void missing(const TensorFacts &wanted) {
    add("missing " + quote(wanted.name) + ", " + wanted.describe());
  }
  void extra(const TensorFacts &found) {
    add("extra " + quote(found.name) + ", " + found.describe());
  }
  void unlike(const TensorFacts &found, const TensorFacts &wanted) {
    add(quote(found.name) + " is " + found.describe() + ", wanted " +
        wanted.describe());
  }
  void add(const std::string &line) { text_ += "\n  " + line; }

  Status status(const std::string &subject) const {
    return text_.empty() ? Status()
                         : Status(Code::inputRejected, subject + ":" + text_);
  }

private:
  std::string text_;
};

/// Reads a tensor into variable `number` in blocks; it may be of another
/// floating type.
Status readVariable(const Safetensors &file, const Entry &entry,
                    Session &session, size_t number) {
  if (!session.computes())
    return Status();
  artifact::ElementType type = session.artifact()
                                   .image()
                                   .variables()
                                   ->Get(static_cast<uint32_t>(number))
                                   ->element_type();
  uint64_t from = dtypeBytes(entry.dtype), to = elementBytes(type);
  uint64_t elements = session.variables().tiling(number).elements();
  uint64_t step = pieceBytes / std::max(from, to);
  std::vector<std::byte> found(std::min(elements, step) * from),
      converted(entry.dtype == dtypeOf(type) ? 0
                                             : std::min(elements, step) * to);
  for (uint64_t begin = 0; begin < elements; begin += step) {
    uint64_t count = std::min(step, elements - begin);
    std::span<std::byte> piece(found.data(), count * from);
    if (Status status = file.read(entry, begin * from, piece); !status.ok())
      return status;
    if (!converted.empty()) {
      std::span<std::byte> target(converted.data(), count * to);
      convertElements(entry.dtype, piece, type, target);
      piece = target;
    }
    if (Status status = session.variables().write(number, begin, piece);
        !status.ok())
      return status;
  }
  return Status();
}

/// The first element whose exponent is all ones: infinite, or not a number.
template <typename Bits, Bits exponent>
std::optional<size_t> findNotFinite(std::span<const std::byte> bytes) {
  auto isNotFinite = [&](size_t i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    return (bits & exponent) == exponent;
  };
  size_t count = bytes.size() / sizeof(Bits);
  // Without an exit, so that the compiler makes vectors of it.
  bool isAny = false;
  for (size_t i = 0; i < count; ++i)
    isAny |= isNotFinite(i);
  for (size_t i = 0; isAny && i < count; ++i)
    if (isNotFinite(i))
      return i;
  return std::nullopt;
}

/// `notFinite` with the first such element of a variable's elements from
/// `begin` on.
Status checkFinite(const artifact::Variable &variable, uint64_t begin,
                   std::span<const std::byte> bytes) {
  std::optional<size_t> found;
  switch (variable.element_type()) {
  case artifact::ElementType::f64:
    found = findNotFinite<uint64_t, 0x7ff0000000000000>(bytes);
    break;
  case artifact::ElementType::f32:
    found = findNotFinite<uint32_t, 0x7f800000>(bytes);
    break;
  case artifact::ElementType::bf16:
    found = findNotFinite<uint16_t, 0x7f80>(bytes);
    break;
  case artifact::ElementType::f16:
    found = findNotFinite<uint16_t, 0x7c00>(bytes);
    break;
  default:
    return Status();
  }
  if (!found)
    return Status();
  double value;
  std::span element =
      bytes.subspan(*found * elementBytes(variable.element_type()));
  convertElements(dtypeOf(variable.element_type()), element,
                  artifact::ElementType::f64,
                  std::as_writable_bytes(std::span(&value, 1)));
  return Status(Code::notFinite, quote(variable.name()->str()) + " is " +
                                     std::to_string(dropNanSign(value)) +
                                     " in element " +
                                     std::to_string(begin + *found));
}

/// Calls function(piece) for variable `number` in blocks, all finite.
template <typename Function>
Status readPieces(const Session &session, uint32_t number, Function function) {
  const artifact::Variable &variable =
      *session.artifact().image().variables()->Get(number);
  uint64_t size = elementBytes(variable.element_type());
  uint64_t elements = session.variables().tiling(number).elements();
  uint64_t step = pieceBytes / size;
  std::vector<std::byte> piece;
  for (uint64_t begin = 0; begin < elements; begin += step) {
    piece.resize(std::min(step, elements - begin) * size);
    Status status = session.variables().read(number, begin, piece);
    if (status.ok())
      status = checkFinite(variable, begin, piece);
    if (status.ok())
      status = function(piece);
    if (!status.ok())
      return status;
  }
  return Status();
}

/// Public names, as the artifact gives them.
class PublicNaming {
public:
  explicit PublicNaming(const artifact::Index &index)
      : names_(index.public_names()) {}

  /// The name without the optional prefix, and with its last component as this
  /// model has it.
  std::string normalise(std::string_view name) const {
    if (name.starts_with(prefix()))
      name.remove_prefix(prefix().size());
    if (names_ && names_->renamed())
      for (const artifact::Alias *renamed : *names_->renamed())
        if (endsWithPart(name, renamed->name()->string_view())) {
          name.remove_suffix(renamed->name()->size());
          return std::string(name) + renamed->variable()->str();
        }
    return std::string(name);
  }

  std::string publicName(const std::string &variable) const {
    bool isBare = variable.starts_with(prefix());
    if (names_ && names_->bare())
      for (const flatbuffers::String *bare : *names_->bare())
        isBare |= variable.starts_with(bare->string_view());
    return isBare ? variable : std::string(prefix()) + variable;
  }

  /// Calls function(alias, variable).
  template <typename Function> void forEachAlias(Function function) const {
    if (names_ && names_->aliases())
      for (const artifact::Alias *alias : *names_->aliases())
        function(alias->name()->str(), alias->variable()->str());
  }

  bool isIgnored(std::string_view name) const {
    if (names_ && names_->ignored())
      for (const flatbuffers::String *ignored : *names_->ignored())
        if (endsWithPart(name, ignored->string_view()))
          return true;
    return false;
  }

private:
  /// "a.b.c" ends with "b.c", but "a.xb.c" does not.
  static bool endsWithPart(std::string_view name, std::string_view part) {
    return name.ends_with(part) && (name.size() == part.size() ||
                                    name[name.size() - part.size() - 1] == '.');
  }

  std::string_view prefix() const {
    return names_ && names_->prefix() ? names_->prefix()->string_view() : "";
  }

  const artifact::PublicNames *names_;
};

/// Finds the tensor of every weight in a file with public names.
class WeightMatch {
public:
  WeightMatch(const Safetensors &file, const artifact::Index &index)
      : file_(file), naming_(index) {
    const auto &variables = *index.images()->Get(0)->variables();
    for (uint32_t i = 0; i < variables.size(); ++i)
      if (const artifact::Variable *variable = variables.Get(i);
          isWeight(*variable))
        weights_[naming_.normalise(variable->name()->string_view())] = {
            variable, i};
  }

  Status find() {
    for (const Entry &entry : file_.entries())
      if (!found_.insert({naming_.normalise(entry.name), &entry}).second)
        differences_.add(quote(entry.name) +
                         " occurs with and without its prefix");
    Status status;
    naming_.forEachAlias([&](const std::string &alias,
                             const std::string &variable) {
      if (status.ok())
        status =
            resolveAlias(naming_.normalise(alias), naming_.normalise(variable));
    });
    if (!status.ok())
      return status;
    for (const auto &[name, weight] : weights_)
      compare(name, factsOf(*weight.variable));
    for (const auto &[name, entry] : found_)
      if (!weights_.contains(name) && !naming_.isIgnored(name))
        differences_.extra(*entry);
    return differences_.status(file_.path() + ": does not fit the model");
  }

  Status read(Session &session) const {
    for (const auto &[name, weight] : weights_)
      if (Status status =
              readVariable(file_, *found_.at(name), session, weight.number);
          !status.ok())
        return status;
    return Status();
  }

private:
  /// The alias stands for its variable if that is missing, otherwise both must
  /// be equal.
  Status resolveAlias(const std::string &alias, const std::string &name) {
    auto second = found_.find(alias);
    if (second == found_.end() || weights_.contains(alias))
      return Status();
    const Entry *entry = second->second;
    found_.erase(second);
    auto [first, isNew] = found_.insert({name, entry});
    if (isNew)
      return Status();
    Expected<TensorDifference> difference =
        compareTensors(file_, *first->second, file_, *entry);
    if (!difference.ok())
      return difference.status();
    if (!difference->isEqual)
      differences_.add(quote(entry->name) + " differs from " +
                       quote(first->second->name) +
                       ", which are one variable in this model");
    return Status();
  }

  void compare(const std::string &name, const TensorFacts &wanted) {
    auto found = found_.find(name);
    if (found == found_.end())
      return differences_.missing(wanted);
    const Entry &entry = *found->second;
    if (entry.shape != wanted.shape ||
        (entry.dtype != wanted.dtype &&
         !(isFloating(entry.dtype) && isFloating(wanted.dtype))))
      differences_.unlike(entry, wanted);
  }

  struct Weight {
    const artifact::Variable *variable;
    size_t number;
  };

  const Safetensors &file_;
  PublicNaming naming_;
  std::map<std::string, Weight> weights_;
  std::map<std::string, const Entry *> found_; // By normalised name.
  Differences differences_;
};

} // namespace

bool isWeight(const artifact::Variable &variable) {
  if (!variable.role())
    return false;
  std::string_view role = variable.role()->string_view();
  return role == "parameter" || role == "statistic";
}

std::map<std::string, std::vector<std::string>>
publicNamesOf(const artifact::Index &index) {
  PublicNaming naming(index);
  std::map<std::string, std::vector<std::string>> names;
  for (const artifact::Variable *variable :
       *index.images()->Get(0)->variables())
    if (isWeight(*variable))
      names[variable->name()->str()] = {
          naming.publicName(variable->name()->str())};
  naming.forEachAlias(
      [&](const std::string &alias, const std::string &variable) {
        auto found = names.find(variable);
        // An alias that is a variable of its own is not tied in this model.
        if (found != names.end() && !names.contains(alias))
          found->second.push_back(naming.publicName(alias));
      });
  return names;
}

VariableSources collectVariables(const Session &session) {
  VariableSources sources;
  const auto &variables = *session.artifact().image().variables();
  for (uint32_t i = 0; i < variables.size(); ++i) {
    const artifact::Variable &variable = *variables.Get(i);
    TensorSource source{
        factsOf(variable), [&session, i](OutputFile &file) {
          return readPieces(session, i, [&](std::span<const std::byte> piece) {
            return file.write(piece);
          });
        }};
    (isWeight(variable) ? sources.weights : sources.others)
        .push_back(std::move(source));
  }
  return sources;
}

Status checkVariables(const Session &session) {
  for (uint32_t i = 0; i < session.artifact().image().variables()->size(); ++i)
    if (Status status = readPieces(session, i, [](auto &) { return Status(); });
        !status.ok())
      return status;
  return Status();
}

Status restoreVariables(const Checkpoint &checkpoint, Session &session) {
  const auto &tensors = checkpoint.tensors();
  const auto &variables = *session.artifact().image().variables();
  Differences differences;
  for (const artifact::Variable *variable : variables) {
    TensorFacts wanted = factsOf(*variable);
    auto found = tensors.find(wanted.name);
    if (found == tensors.end())
      differences.missing(wanted);
    else if (found->second.entry->dtype != wanted.dtype ||
             found->second.entry->shape != wanted.shape)
      differences.unlike(*found->second.entry, wanted);
  }
  for (const auto &[name, tensor] : tensors)
    if (!session.artifact().findVariable(name))
      differences.extra(*tensor.entry);
  Status status =
      differences.status(checkpoint.folder() + ": is of another model");
  for (uint32_t i = 0; i < variables.size() && status.ok(); ++i) {
    const Checkpoint::Tensor &tensor =
        tensors.at(variables.Get(i)->name()->str());
    status = readVariable(*tensor.file, *tensor.entry, session, i);
  }
  return status;
}

Status checkWeights(const Safetensors &file, const artifact::Index &index) {
  return WeightMatch(file, index).find();
}

Status readWeights(const Safetensors &file, Session &session) {
  WeightMatch match(file, session.index());
  if (Status status = match.find(); !status.ok())
    return status;
  return match.read(session);
}

} // namespace kiln
