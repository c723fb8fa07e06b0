// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Schema.h"

#include "compiler/config/CanonicalText.h"

#include <array>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace kiln {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double maximumSize = 2147483647; // Fits the index types of a kernel.
// Above zero in f32: a gradient that is always zero, such as that of padding,
// would otherwise give an update of zero over zero.
constexpr double smallestEpsilon = 1e-30;
// Integers above 2^53 would not survive the tools that read the config as JSON.
constexpr double maximumCount = 9007199254740992;
constexpr double maximumSeed = 0x1p63; // Every int64_t is below.

template <typename T> struct IsRequested : std::false_type {};
template <typename T> struct IsRequested<Requested<T>> : std::true_type {
  using Value = T;
};

/// Conversion of a member between its type and a word.
template <typename T> struct Word {
  static T parse(std::string_view word) {
    if constexpr (std::is_enum_v<T>)
      return findWord<T>(word).value();
    else
      return T(std::stoll(std::string(word)));
  }
  static std::string print(const T &value) {
    if constexpr (std::is_enum_v<T>)
      return std::string(wordOf(value));
    else
      return std::to_string(value);
  }
};
template <> struct Word<std::string> {
  static std::string parse(std::string_view word) { return std::string(word); }
  static std::string print(const std::string &value) { return value; }
};
template <typename T> struct Word<Requested<T>> {
  static Requested<T> parse(std::string_view word) {
    return word == "auto" ? Requested<T>() : Word<T>::parse(word);
  }
  static std::string print(const Requested<T> &value) {
    return value ? Word<T>::print(*value) : "auto";
  }
};

template <typename T> Slot wordSlotOf(T &member) {
  return WordSlot{&member,
                  [](void *object, std::string_view word) {
                    *static_cast<T *>(object) = Word<T>::parse(word);
                  },
                  [](const void *object) {
                    return Word<T>::print(*static_cast<const T *>(object));
                  }};
}

/// The words of an enumeration, joined by bars.
template <typename Enum> constexpr auto joinEnumWords() {
  constexpr size_t length = [] {
    size_t sum = 0;
    for (int i = 0; i < countWords<Enum>(); ++i)
      sum += wordOf(static_cast<Enum>(i)).size() + (i > 0);
    return sum;
  }();
  std::array<char, length> text = {};
  size_t at = 0;
  for (int i = 0; i < countWords<Enum>(); ++i) {
    if (i > 0)
      text[at++] = '|';
    for (char letter : wordOf(static_cast<Enum>(i)))
      text[at++] = letter;
  }
  return text;
}
template <typename Enum> constexpr auto joinedEnumWords = joinEnumWords<Enum>();

/// The member reached by following member pointers from the config.
template <auto... Path> Slot at(Config &config) { return &(config.*....*Path); }

/// The same for a member that is written as a word.
template <auto... Path> Slot wordAt(Config &config) {
  return wordSlotOf((config.*....*Path));
}

/// The type of such a member.
template <auto... Path>
using TypeAt =
    std::remove_reference_t<decltype((std::declval<Config &>().*....*Path))>;

template <typename Enum> constexpr std::string_view choicesOf() {
  if constexpr (IsRequested<Enum>::value)
    return choicesOf<typename IsRequested<Enum>::Value>();
  else
    return {joinedEnumWords<Enum>.data(), joinedEnumWords<Enum>.size()};
}

Slot nowhere(Config &) { return std::monostate(); }

constexpr Key section(std::string_view path, std::string_view summary) {
  return {path, "", KeyType::Section, "", 0, 0, "", "", nowhere, summary};
}

constexpr Key optionalSection(std::string_view path, Slot (*slot)(Config &),
                              std::string_view summary) {
  return {path, "", KeyType::Section, "absent", 0, 0, "", "", slot, summary};
}

constexpr Key integer(std::string_view path, std::string_view kinds,
                      std::string_view fallback, double minimum, double maximum,
                      Slot (*slot)(Config &), std::string_view summary) {
  return {path, kinds, KeyType::Integer, fallback, minimum, maximum, "",
          "",   slot,  summary};
}

constexpr Key number(std::string_view path, std::string_view kinds,
                     std::string_view fallback, double minimum, double maximum,
                     Slot (*slot)(Config &), std::string_view summary) {
  return {path, kinds, KeyType::Number, fallback, minimum, maximum, "",
          "",   slot,  summary};
}

constexpr Key probability(std::string_view path, std::string_view kinds,
                          std::string_view fallback, Slot (*slot)(Config &),
                          std::string_view summary) {
  return {path, kinds,  KeyType::Probability, fallback, 0, 1, "", "",
          slot, summary};
}

/// A key that no program depends on.
constexpr Key setting(Key key) {
  key.isSetting = true;
  return key;
}

/// One of the words of an enumeration.
template <auto... Path>
constexpr Key choice(std::string_view path, std::string_view kinds,
                     std::string_view fallback, std::string_view unavailable,
                     std::string_view summary) {
  return {path,
          kinds,
          KeyType::Choice,
          fallback,
          0,
          0,
          choicesOf<TypeAt<Path...>>(),
          unavailable,
          wordAt<Path...>,
          summary};
}

/// One of some words or numbers that do not form an enumeration.
template <auto... Path>
constexpr Key listedChoice(std::string_view path, std::string_view kinds,
                           std::string_view fallback, std::string_view choices,
                           std::string_view summary) {
  return {path,    kinds, KeyType::Choice, fallback, 0, 0,
          choices, "",    wordAt<Path...>, summary};
}

/// A decision that may be left to the compiler; `choices` is given only where
/// the type is no enumeration.
template <auto... Path>
constexpr Key autoChoice(std::string_view path, std::string_view choices,
                         std::string_view summary) {
  if constexpr (std::is_enum_v<typename IsRequested<TypeAt<Path...>>::Value>)
    choices = choicesOf<TypeAt<Path...>>();
  return {path,    "", KeyType::AutoChoice, "auto", 0, 0,
          choices, "", wordAt<Path...>,     summary};
}

constexpr Key plain(std::string_view path, std::string_view kinds, KeyType type,
                    std::string_view fallback, Slot (*slot)(Config &),
                    std::string_view summary) {
  return {path, kinds, type, fallback, 1, maximumSize, "", "", slot, summary};
}

using M = ModelConfig;
using T = TrainingConfig;
using O = OptimizerConfig;
using S = ScheduleConfig;
using L = LossScaleConfig;
using D = DataConfig;
using E = EvaluationConfig;
using C = CheckpointConfig;
using V = DevicesConfig;
constexpr auto model = &Config::model;
constexpr auto training = &Config::training;
constexpr auto optimizer = &TrainingConfig::optimizer;
constexpr auto schedule = &TrainingConfig::schedule;
constexpr auto lossScale = &TrainingConfig::lossScale;
constexpr auto data = &Config::data;
constexpr auto evaluation = &Config::evaluation;
constexpr auto checkpoint = &Config::checkpoint;
constexpr auto devices = &Config::devices;

// clang-format off
const Key keys[] = {
    section("model", "the network"),
    choice<model, &M::kind>("model.kind", "", "required", "", "model family"),
    integer("model.layers", "gpt|bert|classifier", "required", 1, 10000, at<model, &M::layers>, "transformer blocks"),
    integer("model.hidden", "gpt|bert|classifier", "required", 1, 1 << 20, at<model, &M::hidden>, "width of the residual stream"),
    integer("model.heads", "gpt|bert|classifier", "required", 1, 1 << 16, at<model, &M::heads>, "attention heads; must divide hidden"),
    integer("model.feed_forward", "gpt|bert|classifier", "= 4 * model.hidden", 1, 1 << 22, at<model, &M::feedForward>, "width inside the feed-forward layer"),
    integer("model.sequence", "gpt|classifier", "required", 1, 1 << 20, at<model, &M::sequence>, "tokens of a sample"),
    integer("model.sequence", "bert", "required", 5, 1 << 20, at<model, &M::sequence>, "tokens of a sample: two segments and three marks"),
    integer("model.vocabulary", "gpt", "required", 2, 1 << 26, at<model, &M::vocabulary>, "distinct tokens"),
    integer("model.vocabulary", "bert", "required", 6, 1 << 26, at<model, &M::vocabulary>, "distinct tokens, five of them marks"),
    integer("model.vocabulary", "classifier", "required", 3, 1 << 26, at<model, &M::vocabulary>, "distinct tokens, padding and unknown among them"),
    integer("model.max_positions", "gpt|bert|classifier", "= model.sequence", 1, 1 << 20, at<model, &M::maximumPositions>, "learned positions, of which the first model.sequence are used"),
    probability("model.dropout", "gpt|bert|classifier", "0", at<model, &M::dropout>, "share of activations dropped in training"),
    probability("model.attention_dropout", "gpt|bert|classifier", "0", at<model, &M::attentionDropout>, "share of attention weights dropped in training"),
    plain("model.tied_head", "gpt", KeyType::Boolean, "true", at<model, &M::tiedHead>, "the head uses the token embedding's weights"),
    plain("model.biases", "gpt", KeyType::Boolean, "true", at<model, &M::biases>, "linear layers and norms have biases"),
    choice<model, &M::positions>("model.positions", "gpt", "learned", "", "position embedding"),
    integer("model.predictions", "bert", "= 0.15 * model.sequence, rounded up", 1, 1 << 20, at<model, &M::predictions>, "masked tokens of a sample, at most"),
    listedChoice<model, &M::depth>("model.depth", "resnet", "required", "18|50|101", "layers that have weights"),
    listedChoice<model, &M::channels>("model.channels", "resnet", "1", "1|3", "channels of an image"),
    integer("model.image", "resnet", "28", 1, 1 << 14, at<model, &M::image>, "height and width of an image"),
    integer("model.classes", "resnet", "10", 2, 1 << 26, at<model, &M::classes>, "number of classes"),
    integer("model.statistics_group", "resnet", "= 32, or training.global_batch if that is less", 1, 1 << 24, at<model, &M::statisticsGroup>, "consecutive samples that batch norm takes together; must divide both batches"),
    number("model.momentum", "resnet", "0.1", 0, 1, at<model, &M::momentum>, "share of a step in the running statistics"),
    integer("model.classes", "classifier", "5", 2, 1 << 26, at<model, &M::classes>, "number of classes"),
    plain("model.hidden", "mlp", KeyType::IntegerList, "[256]", at<model, &M::hiddenSizes>, "widths of the hidden layers"),
    integer("model.inputs", "mlp", "784", 1, 1 << 26, at<model, &M::inputs>, "values of a sample"),
    integer("model.classes", "mlp", "10", 2, 1 << 26, at<model, &M::classes>, "number of classes"),
    plain("model.path", "file", KeyType::Path, "required", at<model, &M::path>, "file of kiln text"),

    section("training", "batches, length and precision of training"),
    integer("training.global_batch", "", "required", 1, 1 << 24, at<training, &T::globalBatch>, "samples in one optimizer step, over all devices"),
    plain("training.micro_batch", "", KeyType::MicroBatch, "none", at<training, &T::microBatch>, "samples run through forward and backward at once; auto is none until there is a search, which explore and a map wait for"),
    setting(integer("training.steps", "", "absent", 1, maximumCount, at<training, &T::steps>, "optimizer steps; either this or epochs")),
    setting(integer("training.epochs", "", "absent", 1, maximumSize, at<training, &T::epochs>, "passes over the data; either this or steps")),
    setting(integer("training.seed", "", "0", 0, maximumSeed, at<training, &T::seed>, "seed of weights and sample order")),
    {"training.precision", "", KeyType::Precision, "f32", 0, 0, choicesOf<FloatFormat>(), "", at<training, &T::precision>, "element types: bf16 and f16 keep masters and moments in f32, f64 is for tests; a map sets parts of a preset, such as {preset: bf16, messages: f32}: parameters, compute, activations, gradients, messages, master (none: stochastic rounding) and moments"},
    section("training.loss_scale", "the factor of the loss that is differentiated where precision has parts in f16"),
    number("training.loss_scale.initial", "", "65536", 1, infinity, at<training, lossScale, &L::initial>, "of the first step; gradients that are not finite halve it, and their step updates nothing"),
    integer("training.loss_scale.growth_steps", "", "2000", 1, maximumCount, at<training, lossScale, &L::growthSteps>, "finite steps in a row after which it doubles"),
    number("training.clip_norm", "", "0", 0, infinity, at<training, &T::clipNorm>, "greatest global norm of the gradients; 0 is off"),
    setting(plain("training.init", "", KeyType::Path, "absent", at<training, &T::init>, "initial weights: a safetensors file, with the names of public checkpoints")),
    section("training.optimizer", "the update rule"),
    choice<training, optimizer, &O::kind>("training.optimizer.kind", "", "adamw", "", "update rule"),
    setting(number("training.optimizer.learning_rate", "", "0.001", 0, infinity, at<training, optimizer, &O::learningRate>, "step size")),
    {"training.optimizer.betas", "adam|adamw", KeyType::Pair, "[0.9, 0.999]", 0, 1, "", "", at<training, optimizer, &O::betas>, "decay of the two moments"},
    number("training.optimizer.epsilon", "adam|adamw", "1e-08", smallestEpsilon, infinity, at<training, optimizer, &O::epsilon>, "added to the root of the second moment"),
    number("training.optimizer.weight_decay", "adamw", "0.01", 0, infinity, at<training, optimizer, &O::weightDecay>, "decay of the weights, apart from the gradient"),
    number("training.optimizer.weight_decay", "adam|sgd", "0", 0, infinity, at<training, optimizer, &O::weightDecay>, "decay of the weights, added to the gradient"),
    number("training.optimizer.momentum", "sgd", "0", 0, 1, at<training, optimizer, &O::momentum>, "share of the last update that is kept"),
    section("training.schedule", "the learning rate over time"),
    setting(choice<training, schedule, &S::kind>("training.schedule.kind", "", "constant", "", "shape after the warm-up")),
    setting(integer("training.schedule.warmup", "", "0", 0, maximumCount, at<training, schedule, &S::warmup>, "steps of linear rise")),
    setting(integer("training.schedule.steps", "cosine", "= training.steps", 1, maximumCount, at<training, schedule, &S::steps>, "step at which the minimum is reached")),
    setting(number("training.schedule.minimum", "cosine", "0", 0, infinity, at<training, schedule, &S::minimum>, "learning rate at the end")),

    section("data", "training data"),
    setting(choice<data, &D::kind>("data.kind", "", "required", "", "format of the data; none is zeros, to look at a plan or to measure")),
    setting(plain("data.path", "text|tokens|documents|tsv|idx", KeyType::Path, "required", at<data, &D::path>, "file of samples")),
    setting(plain("data.labels", "idx", KeyType::Path, "required", at<data, &D::labels>, "file of labels")),
    setting(listedChoice<data, &D::tokenizer>("data.tokenizer", "text", "bytes", "bytes", "tokenizer of text")),
    setting(plain("data.vocabulary", "documents|tsv", KeyType::Path, "absent", at<data, &D::vocabulary>, "file of the words that have ids, one on each line, as runs and exports write it; absent: the most frequent words of the data")),
    setting(listedChoice<data, &D::width>("data.width", "tokens", "16", "16|32", "bits of a token")),
    setting(plain("data.shuffle", "text|tokens|documents|tsv|idx", KeyType::Boolean, "true", at<data, &D::shuffle>, "a new order each epoch; false is file order")),

    optionalSection("evaluation", at<evaluation, &E::presence>, "loss and accuracy on data held out"),
    setting(plain("evaluation.every", "", KeyType::Every, "epoch", at<evaluation, &E::every>, "steps from one evaluation to the next, or epoch")),
    setting(plain("evaluation.path", "", KeyType::Path, "absent", at<evaluation, &E::path>, "file of samples, of the same kind as the data; absent: the end of the data")),
    setting(plain("evaluation.labels", "", KeyType::Path, "absent", at<evaluation, &E::labels>, "file of labels, where data.kind is idx")),
    setting(probability("evaluation.fraction", "", "0.1", at<evaluation, &E::fraction>, "fraction of the data that is held out, where there is no path")),

    section("devices", "devices and how training is parallelised over them"),
    choice<devices, &V::kind>("devices.kind", "", "cpu", "cuda|gpusim", "kind of device; dry checks every command of the plan and computes nothing"),
    integer("devices.count", "", "1", 1, maximumDevices, at<devices, &V::count>, "number of devices; those of kind cpu are virtual"),
    plain("devices.threads", "", KeyType::Threads, "auto", at<devices, &V::threads>, "workers of a device; auto is an equal share of the cores"),
    plain("devices.memory", "", KeyType::Bytes, "auto", at<devices, &V::memory>, "bytes of a device; auto is no limit"),
    plain("devices.mesh", "", KeyType::Mesh, "auto", at<devices, &V::mesh>, "mesh axes over the devices; auto is data alone"),
    autoChoice<devices, &V::zero>("devices.zero", "0|1|2|3", "ZeRO stage: shards over data 1 moments, 2 also gradients, 3 also parameters"),
    autoChoice<devices, &V::offload>("devices.offload", "", "state kept in host memory"),
    autoChoice<devices, &V::recompute>("devices.recompute", "", "activations that the backward pass of a layer recomputes"),
    plain("devices.sequence_parallel", "", KeyType::Boolean, "true", at<devices, &V::isSequenceParallel>, "norms and the residual stream are sharded along the sequence over tensor"),
    plain("devices.bucket_bytes", "", KeyType::Bytes, "auto", at<devices, &V::bucketBytes>, "bytes of parameters or gradients of a layer that share one collective; auto is 4 MiB"),
    {"devices.speeds", "", KeyType::NumberList, "auto", 0, infinity, "", "", at<devices, &V::speeds>, "relative speeds, one per device or one per replica along data; shares of the batch are in proportion; auto is all alike"},

    section("log", "progress output"),
    setting(integer("log.every", "", "20", 1, maximumCount, at<&Config::log, &LogConfig::every>, "steps from one log line to the next")),

    setting(optionalSection("checkpoint", at<checkpoint, &C::presence>, "saving state while training; without it the last state is saved, with none nothing is")),
    setting(integer("checkpoint.every", "", "100", 1, maximumCount, at<checkpoint, &C::every>, "steps from one checkpoint to the next")),
    setting(integer("checkpoint.keep", "", "3", 1, maximumCount, at<checkpoint, &C::keep>, "how many are kept, the newest")),
};
// clang-format on

} // namespace

std::string_view Key::section() const {
  size_t dot = path.rfind('.');
  return dot == path.npos ? std::string_view() : path.substr(0, dot);
}

std::string_view Key::name() const {
  size_t dot = path.rfind('.');
  return dot == path.npos ? path : path.substr(dot + 1);
}

static std::string wantedInteger(const Key &key) {
  auto bound = [](double value) {
    return std::to_string(value < maximumSeed
                              ? static_cast<int64_t>(value)
                              : std::numeric_limits<int64_t>::max());
  };
  if (key.minimum == 1)
    return "a positive integer up to " + bound(key.maximum);
  return "an integer from " + bound(key.minimum) + " to " + bound(key.maximum);
}

static std::string wantedNumber(const Key &key) {
  if (key.maximum == infinity)
    return "a number of at least " + printNumber(key.minimum);
  return "a number from " + printNumber(key.minimum) + " to " +
         printNumber(key.maximum);
}

std::string Key::wanted() const {
  switch (type) {
  case KeyType::Section:
    return fallback == "absent" ? "a map or none" : "a map";
  case KeyType::Integer:
    return wantedInteger(*this);
  case KeyType::IntegerList:
    return "a positive integer or a list of them";
  case KeyType::Number:
    return wantedNumber(*this);
  case KeyType::Pair:
    return "a list of two numbers, each at least 0 and below 1";
  case KeyType::NumberList:
    return "auto or a list of positive numbers";
  case KeyType::Boolean:
    return "true or false";
  case KeyType::Probability:
    return "a number of at least 0 and below 1";
  case KeyType::Path:
    return "the path of a file";
  case KeyType::MicroBatch:
    return "a positive integer, auto or none";
  case KeyType::Every:
    return "a positive integer or epoch";
  case KeyType::Threads:
    return "a positive integer or auto";
  case KeyType::Bytes:
    return "a size such as 2GiB, or auto";
  case KeyType::Mesh:
    return "auto or a map of axes such as {data: 4, tensor: 2}";
  case KeyType::Precision:
    return joinWords(splitChoices(choices)) +
           ", or a map of parts such as {preset: bf16, messages: f32}";
  case KeyType::Choice:
  case KeyType::AutoChoice:
    break;
  }
  std::vector<std::string> words = splitChoices(choices);
  if (type == KeyType::AutoChoice)
    words.insert(words.begin(), "auto");
  std::erase_if(words, [&](const std::string &word) {
    return hasChoice(unavailable, word);
  });
  return joinWords(words);
}

std::span<const Key> schema() { return keys; }

const Key *findKey(std::string_view path, std::string_view kind) {
  for (const Key &key : keys)
    if (key.path == path && (key.kinds.empty() || hasChoice(key.kinds, kind)))
      return &key;
  return nullptr;
}

bool isKnownPath(std::string_view path) {
  for (const Key &key : keys)
    if (key.path == path)
      return true;
  return false;
}

std::string kindOfSection(std::string_view section, const Config &config) {
  const Key *kind = findKey(std::string(section) + ".kind", "");
  if (!kind)
    return "";
  // The slot only reads here; slots are declared on mutable configs.
  WordSlot slot = std::get<WordSlot>(kind->slot(const_cast<Config &>(config)));
  return slot.load(slot.object);
}

Presence presenceOf(std::string_view section, const Config &config) {
  const Key *key = findKey(section, "");
  if (!key || key->fallback != "absent")
    return Presence::Given;
  return *std::get<Presence *>(key->slot(const_cast<Config &>(config)));
}

bool hasSection(std::string_view section, const Config &config) {
  return presenceOf(section, config) == Presence::Given;
}

std::string joinWords(const std::vector<std::string> &words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

std::vector<std::string> splitChoices(std::string_view choices) {
  std::vector<std::string> words;
  while (!choices.empty()) {
    size_t bar = std::min(choices.find('|'), choices.size());
    words.emplace_back(choices.substr(0, bar));
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return words;
}

bool hasChoice(std::string_view choices, std::string_view word) {
  for (const std::string &candidate : splitChoices(choices))
    if (candidate == word)
      return true;
  return false;
}

std::string describeSchema() {
  std::ostringstream text;
  text << "Keys marked * are settings: no program depends on them, so kiln run "
          "takes them, and\nchanging one does not compile again.\n";
  for (const Key &key : keys) {
    if (key.type == KeyType::Section) {
      text << "\n"
           << key.path << ": " << key.summary
           << (key.fallback == "absent" ? "; may be left out, or none\n"
                                        : "\n");
      continue;
    }
    text << "  " << key.path;
    if (!key.kinds.empty())
      text << "  (" << key.kinds << ")";
    if (key.isSetting)
      text << "  *";
    text << "\n      " << key.summary;
    if (key.hasDefault())
      text << "; " << key.wanted() << " [" << key.fallback << "]\n";
    else if (key.fallback.starts_with("="))
      text << "; " << key.wanted() << " [" << key.fallback.substr(2) << "]\n";
    else
      text << "; " << key.wanted()
           << (key.isRequired() ? ", required\n" : "\n");
  }
  return text.str();
}

} // namespace kiln
