// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/Group.h"
#include "runtime/collective/Patience.h"
#include "runtime/collective/World.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

namespace kiln {

static std::optional<uint64_t> parseNumber(std::string_view text) {
  uint64_t number = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  bool isWhole = error == std::errc() && end == text.data() + text.size();
  return isWhole ? std::optional(number) : std::nullopt;
}

Expected<CollectiveSettings> CollectiveSettings::fromEnvironment() {
  CollectiveSettings settings;
  constexpr uint64_t maximum = 1'000'000'000;
  if (const char *text = std::getenv("KILN_COLLECTIVE_TIMEOUT")) {
    std::optional<uint64_t> seconds = parseNumber(text);
    if (!seconds || *seconds == 0 || *seconds > maximum)
      return Status(Code::usage, std::string("KILN_COLLECTIVE_TIMEOUT is '") +
                                     text +
                                     "', wanted a number of seconds from 1 on");
    settings.limit = std::chrono::seconds(*seconds);
  }
  if (const char *text = std::getenv("KILN_FAULT")) {
    constexpr std::string_view prefix = "link:delay_us=";
    std::string_view given = text;
    std::optional<uint64_t> delay;
    if (given.starts_with(prefix))
      delay = parseNumber(given.substr(prefix.size()));
    if (!delay || *delay > maximum)
      return Status(Code::usage, std::string("KILN_FAULT is '") + text +
                                     "', wanted 'link:delay_us=N'");
    settings.delay = std::chrono::microseconds(*delay);
  }
  return settings;
}

/// The window has room for a message to and from each remote member, in the
/// process with most remote members: all must split messages alike.
static uint64_t fitSlot(const Link &link, uint32_t members) {
  std::map<uint32_t, uint32_t> locals; // By rank.
  for (uint32_t member = 0; member < members; ++member)
    ++locals[link.rankOf(member)];
  uint32_t remotes = 0;
  for (auto [rank, count] : locals)
    remotes = std::max(remotes, members - count);
  return Endpoint::windowBytes / (2 * remotes) / 64 * 64;
}

Group::Group(std::vector<uint32_t> devices, const std::vector<bool> &isLocal,
             std::unique_ptr<Link> link)
    : devices_(std::move(devices)), seats_(new Seat[devices_.size()]),
      link_(std::move(link)) {
  for (uint32_t member = 0; member < devices_.size(); ++member) {
    seats_[member].isLocal = isLocal[member];
    (isLocal[member] ? locals_ : remotes_).push_back(member);
  }
  if (!remotes_.empty())
    slotBytes_ = fitSlot(*link_, static_cast<uint32_t>(devices_.size()));
}

uint32_t Group::memberOf(uint32_t device) const {
  return static_cast<uint32_t>(
      std::find(devices_.begin(), devices_.end(), device) - devices_.begin());
}

static std::string deviceName(uint32_t device) {
  return "device " + std::to_string(device);
}

void Group::giveUp(const Turn &turn, uint32_t missing) const {
  std::string who = deviceName(devices_[missing]),
              waits = deviceName(turn.endpoint.device) + " waits for ";
  if (World *world = turn.endpoint.settings.world) {
    // It may itself be blocked on another process, maybe in another group.
    if (Stall stall(world->ask()); stall.hasMissing())
      giveUp(turn, stall,
             waits + who + ", whose process waits for " + stall.explain());
    who = rankName(world->rank()) + " (" + who + ")";
  }
  endTimedOut(turn.exchange.name, who + " has not come",
              turn.endpoint.settings.limit, waits + "it");
}

void Group::giveUp(const Turn &turn, const Stall &stall,
                   const std::string &waits) const {
  auto name = [&](uint32_t rank) {
    std::string devices;
    for (uint32_t member : remotes_)
      if (link_->rankOf(member) == rank)
        devices += (devices.empty() ? "" : ", ") + deviceName(devices_[member]);
    return rankName(rank) + (devices.empty() ? "" : " (" + devices + ")");
  };
  endTimedOut(turn.exchange.name, stall.blame(name),
              turn.endpoint.settings.limit, waits);
}

void Group::meet(const Turn &turn) {
  Gate &mine = seats_[turn.member].gate;
  mine.open();
  // Only this member opens it, and none can be ahead by more than one.
  uint64_t meeting = mine.value();
  Patience patience(turn.endpoint.settings.limit);
  for (uint32_t other : locals_)
    while (!seats_[other].gate.await(meeting, Patience::look))
      if (patience.isOver())
        giveUp(turn, other);
}

void Group::begin(const Turn &turn) {
  Seat &seat = seats_[turn.member];
  seat.exchange = &turn.exchange;
  seat.repetition = turn.repetition;
  meet(turn);
  for (uint32_t other : locals_)
    if (!turn.exchange.isLike(*seats_[other].exchange))
      endWithError(deviceName(turn.endpoint.device) + " runs collective '" +
                       turn.exchange.name + "' while " +
                       deviceName(devices_[other]) + " runs '" +
                       seats_[other].exchange->name +
                       "', which is not the same",
                   Code::internal);
}

void Group::transfer(const Turn &turn) {
  if (turn.exchange.reduces())
    reduce(turn);
  if (turn.exchange.reduces() && turn.exchange.gathers())
    meet(turn); // Every shard is complete.
  if (turn.exchange.gathers())
    gather(turn);
  meet(turn); // No member reads this one's memory any more.
}

void Group::delay(const Turn &turn) const {
  if (turn.endpoint.settings.delay.count() != 0)
    std::this_thread::sleep_for(turn.endpoint.settings.delay *
                                (devices_.size() - 1));
}

template <typename Body>
void Group::forEachRound(const Turn &turn, Body body) const {
  // No shard is larger than the first.
  uint64_t most = turn.exchange.countPart(0);
  uint64_t step = remotes_.empty() ? std::max<uint64_t>(most, 1)
                                   : slotBytes_ / turn.exchange.elementBytes;
  for (uint64_t begin = 0; begin < most; begin += step)
    body(begin, begin + step);
}

template <typename Source>
void Group::exchangeMessages(const Turn &turn, uint64_t begin, uint64_t end,
                             bool isOwnSent, Source source) const {
  if (!link_)
    return;
  const Exchange &exchange = turn.exchange;
  Endpoint &endpoint = turn.endpoint;
  uint64_t size = exchange.elementBytes, slot = slotBytes_;
  auto clip = [&](uint32_t part) {
    return std::min(end, exchange.countPart(part));
  };
  std::byte *out = endpoint.window.data();
  for (uint32_t other : remotes_) {
    uint32_t sent = isOwnSent ? turn.member : other,
             received = isOwnSent ? other : turn.member;
    exchange.forEachRun(sent, begin, clip(sent), [&](const Exchange::Run &run) {
      std::memcpy(out + (run.stream - begin) * size, source(run),
                  run.count * size);
    });
    if (clip(sent) > begin)
      endpoint.sends.push_back({other, out, (clip(sent) - begin) * size});
    if (clip(received) > begin)
      endpoint.receives.push_back(
          {other, out + slot, (clip(received) - begin) * size});
    out += 2 * slot;
  }
  if (std::optional<Inquiry> inquiry = link_->transfer(
          turn.member, exchange.name, endpoint.sends, endpoint.receives)) {
    Stall stall(*inquiry);
    giveUp(turn, stall,
           deviceName(endpoint.device) + " waits for " + stall.explain());
  }
  for (const Message &message : endpoint.receives)
    endpoint.receivedBytes += message.count;
  endpoint.sends.clear();
  endpoint.receives.clear();
}

void Group::reduce(const Turn &turn) {
  const Exchange &exchange = turn.exchange;
  delay(turn);
  forEachRound(turn, [&](uint64_t begin, uint64_t end) {
    exchangeMessages(turn, begin, end, /*isOwnSent=*/false,
                     [&](const Exchange::Run &run) {
                       return run.piece->sourceAt(turn.repetition) +
                              run.whole * exchange.elementBytes;
                     });
    combine(turn, begin, std::min(end, exchange.countPart(turn.member)));
  });
  if (!exchange.gathers())
    clearPadding(turn);
}

/// Elements [begin, end) of this member's shard; other members' addends are in
/// their memory or in the window. A block at a time, because source and target
/// may be the same.
void Group::combine(const Turn &turn, uint64_t begin, uint64_t end) {
  const Exchange &exchange = turn.exchange;
  uint64_t size = exchange.elementBytes, slot = slotBytes_;
  Combiner combiner(exchange.combine, exchange.type, turn.endpoint.block);
  uint64_t blockElements = combiner.blockElements();
  exchange.forEachRun(turn.member, begin, end, [&](const Exchange::Run &run) {
    std::byte *target = run.piece->targetAt(turn.repetition) +
                        (exchange.gathers() ? run.whole : run.local) * size;
    for (uint64_t at = 0; at < run.count; at += blockElements) {
      uint64_t count = std::min(blockElements, run.count - at);
      uint64_t remote = 0; // Members of both kinds are in order.
      for (uint32_t member = 0; member < devices_.size(); ++member) {
        const std::byte *source;
        if (seats_[member].isLocal) {
          const Seat &seat = seats_[member];
          source = seat.exchange->pieces[run.number].sourceAt(seat.repetition) +
                   (run.whole + at) * size;
          turn.endpoint.receivedBytes +=
              member == turn.member ? 0 : count * size;
        } else {
          source = turn.endpoint.window.data() + (2 * remote++ + 1) * slot +
                   (run.stream + at - begin) * size;
        }
        if (member == 0)
          combiner.start(source, count);
        else
          combiner.add(source, count);
      }
      combiner.finish(target + at * size, count);
    }
  });
}

void Group::clearPadding(const Turn &turn) const {
  uint64_t size = turn.exchange.elementBytes;
  for (const Exchange::Piece &piece : turn.exchange.pieces) {
    Cut cut{piece.size, devices_.size()};
    uint64_t row = cut.part() * piece.inner,
             valid = cut.valid(turn.member) * piece.inner;
    if (row != valid)
      for (uint64_t outer = 0; outer < piece.outer; ++outer)
        std::memset(piece.targetAt(turn.repetition) +
                        (outer * row + valid) * size,
                    0, (row - valid) * size);
  }
}

void Group::gather(const Turn &turn) {
  const Exchange &exchange = turn.exchange;
  uint64_t size = exchange.elementBytes;
  delay(turn);
  forEachRound(turn, [&](uint64_t begin, uint64_t end) {
    exchangeMessages(
        turn, begin, end, /*isOwnSent=*/true, [&](const Exchange::Run &run) {
          return exchange.reduces()
                     ? run.piece->targetAt(turn.repetition) + run.whole * size
                     : run.piece->sourceAt(turn.repetition) + run.local * size;
        });
    takeParts(turn, begin, end);
  });
}

void Group::takeParts(const Turn &turn, uint64_t begin, uint64_t end) {
  const Exchange &exchange = turn.exchange;
  uint64_t size = exchange.elementBytes, slot = slotBytes_, remote = 0;
  for (uint32_t member = 0; member < devices_.size(); ++member) {
    const Seat &seat = seats_[member];
    const std::byte *window =
        seat.isLocal ? nullptr
                     : turn.endpoint.window.data() + (2 * remote++ + 1) * slot;
    // Its own shard of an all_reduce is there already.
    if (member == turn.member && exchange.reduces())
      continue;
    exchange.forEachRun(
        member, begin, std::min(end, exchange.countPart(member)),
        [&](const Exchange::Run &run) {
          const std::byte *source;
          if (!seat.isLocal) {
            source = window + (run.stream - begin) * size;
          } else {
            const Exchange::Piece &theirs = seat.exchange->pieces[run.number];
            source = exchange.reduces()
                         ? theirs.targetAt(seat.repetition) + run.whole * size
                         : theirs.sourceAt(seat.repetition) + run.local * size;
            turn.endpoint.receivedBytes +=
                member == turn.member ? 0 : run.count * size;
          }
          std::memcpy(run.piece->targetAt(turn.repetition) + run.whole * size,
                      source, run.count * size);
        });
  }
}

} // namespace kiln
