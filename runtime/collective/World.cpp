// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/World.h"
#include "runtime/FindLibrary.h"
#include "runtime/collective/Group.h"
#include "runtime/collective/Stall.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

namespace kiln {

std::string findMpiLibrary() { return findLibrary("libkiln_mpi.so"); }

bool World::isOneOfMany() {
  const char *size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size && std::atoi(size) > 1;
}

Expected<std::unique_ptr<World>> World::open() {
  if (!isOneOfMany())
    return std::unique_ptr<World>();
  std::string path = findMpiLibrary();
  if (path.empty())
    return Status(Code::failed, "started by mpirun, but this kiln was built "
                                "without Open MPI; install libopenmpi-dev and "
                                "build again");
  // Global, because Open MPI opens components that look for its own symbols.
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    return Status(Code::failed, path + ": " + ::dlerror());
  auto *open = reinterpret_cast<OpenTransportFunction *>(
      ::dlsym(library, openTransportSymbol));
  if (!open)
    return Status(Code::failed, path + ": " + ::dlerror());
  Expected<CollectiveSettings> settings = CollectiveSettings::fromEnvironment();
  if (!settings.ok())
    return settings.status();
  std::string error;
  std::unique_ptr<Transport> transport(open(settings->limit, error));
  if (!transport)
    return Status(Code::failed, error);
  return std::make_unique<World>(std::move(transport), settings->limit);
}

World::World(std::unique_ptr<Transport> transport, std::chrono::seconds limit)
    : transport_(std::move(transport)), limit_(limit) {
  std::vector<uint32_t> all(size());
  std::iota(all.begin(), all.end(), 0);
  link_ = transport_->connect(all);
}

void World::transfer(std::span<const Message> sends,
                     std::span<const Message> receives) {
  static const std::string name = "agreement of processes";
  if (std::optional<Inquiry> inquiry =
          link_->transfer(rank(), name, sends, receives)) {
    Stall stall(*inquiry);
    endTimedOut(name, stall.blame(rankName), limit_,
                rankName(rank()) + " waits for " + stall.explain());
  }
}

std::unique_ptr<Link> World::connect(const std::vector<uint32_t> &ranks) {
  // The transport has no time limit, so all must arrive before it starts.
  std::set<uint32_t> others(ranks.begin(), ranks.end());
  others.erase(rank());
  std::byte sent{};
  std::vector<std::byte> received(size());
  std::vector<Message> sends, receives;
  for (uint32_t other : others) {
    sends.push_back({other, &sent, 1});
    receives.push_back({other, &received[other], 1});
  }
  transfer(sends, receives);
  return transport_->connect(ranks);
}

// Through the first process, so that all get the same.
std::vector<std::string> World::gather(const std::string &text) {
  std::vector<std::string> all(size());
  all[rank()] = text;
  if (rank() != 0) {
    sendText(0, text);
    for (std::string &each : all)
      each = receiveText(0);
    return all;
  }
  for (uint32_t other = 1; other < size(); ++other)
    all[other] = receiveText(other);
  for (uint32_t other = 1; other < size(); ++other)
    for (const std::string &each : all)
      sendText(other, each);
  return all;
}

uint64_t World::maximum(uint64_t number) {
  auto bytes = std::as_writable_bytes(std::span(&number, 1));
  if (rank() != 0) {
    send(0, bytes);
    receive(0, bytes);
    return number;
  }
  for (uint32_t other = 1; other < size(); ++other) {
    uint64_t theirs;
    receive(other, std::as_writable_bytes(std::span(&theirs, 1)));
    number = std::max(number, theirs);
  }
  for (uint32_t other = 1; other < size(); ++other)
    send(other, bytes);
  return number;
}

/// MPI counts the bytes of a message with int.
template <typename Byte, typename Function>
static void forEachPart(std::span<Byte> bytes, Function function) {
  constexpr size_t most = size_t{1} << 30;
  for (size_t begin = 0; begin < bytes.size(); begin += most)
    function(bytes.subspan(begin, std::min(most, bytes.size() - begin)));
}

void World::send(uint32_t rank, std::span<const std::byte> bytes) {
  forEachPart(bytes, [&](std::span<const std::byte> part) {
    // Sent bytes are only read.
    Message message{rank, const_cast<std::byte *>(part.data()), part.size()};
    transfer({&message, 1}, {});
  });
}

void World::receive(uint32_t rank, std::span<std::byte> bytes) {
  forEachPart(bytes, [&](std::span<std::byte> part) {
    Message message{rank, part.data(), part.size()};
    transfer({}, {&message, 1});
  });
}

void World::sendText(uint32_t rank, const std::string &text) {
  uint64_t size = text.size();
  send(rank, std::as_bytes(std::span(&size, 1)));
  send(rank, std::as_bytes(std::span(text)));
}

std::string World::receiveText(uint32_t rank) {
  uint64_t size = 0;
  receive(rank, std::as_writable_bytes(std::span(&size, 1)));
  std::string text(size, '\0');
  receive(rank, std::as_writable_bytes(std::span(text)));
  return text;
}

Status agree(World *world, const Status &status) {
  if (!world)
    return status;
  std::vector<std::string> all = world->gather(
      std::to_string(static_cast<int>(status.code())) + " " + status.message());
  for (uint32_t rank = 0; rank < all.size(); ++rank)
    if (Code code = static_cast<Code>(std::atoi(all[rank].c_str()));
        code != Code::ok)
      return Status(code, (rank ? rankName(rank) + ": " : "") +
                              all[rank].substr(all[rank].find(' ') + 1));
  return Status();
}

/// Of a text of several lines, the lines that `other` lacks.
static std::string describeDifference(const std::string &text,
                                      const std::string &other) {
  auto split = [](const std::string &all) {
    std::vector<std::string> lines;
    std::istringstream stream(all);
    for (std::string line; std::getline(stream, line);)
      lines.push_back(
          line.substr(std::min(line.find_first_not_of(' '), line.size())));
    return lines;
  };
  std::vector<std::string> lines = split(text), others = split(other);
  if (lines.size() <= 1)
    return text;
  std::string found;
  for (const std::string &line : lines)
    if (std::find(others.begin(), others.end(), line) == others.end())
      found += (found.empty() ? "" : "; ") + line;
  return found;
}

Status requireSame(World *world, const std::string &what,
                   const std::string &given, Code code) {
  if (!world)
    return Status();
  std::vector<std::string> all = world->gather(given);
  std::map<std::string, std::vector<uint32_t>> ranks;
  for (uint32_t rank = 0; rank < all.size(); ++rank)
    ranks[all[rank]].push_back(rank);
  if (ranks.size() == 1)
    return Status();
  const std::string *most = &all[0]; // On a tie, the lowest rank's.
  for (const std::string &each : all)
    if (ranks[each].size() > ranks[*most].size())
      most = &each;
  std::string text, usual;
  for (const auto &[each, those] : ranks)
    if (each != *most) {
      text += (text.empty() ? "" : ", ") + nameRanks(those) +
              (those.size() == 1 ? " has" : " have") + " another " + what +
              " (" + describeDifference(each, *most) + ")";
      usual = describeDifference(*most, each);
    }
  return Status(code,
                text + " than " + nameRanks(ranks[*most]) + " (" + usual + ")");
}

} // namespace kiln
