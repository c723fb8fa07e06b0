// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/Communicator.h"
#include "runtime/thread/FlushDenormals.h"

namespace kiln {

Communicator::~Communicator() {
  isStopping_ = true;
  orderGate_.open();
}

uint32_t Communicator::add(Exchange exchange, Group &group) {
  while (tickets_.size() <= exchange.ticket)
    tickets_.emplace_back();
  if (group.hasRemotes())
    endpoint_.window.resize(Endpoint::windowBytes);
  endpoint_.sends.reserve(exchange.members);
  endpoint_.receives.reserve(exchange.members);
  uint32_t member = group.memberOf(endpoint_.device);
  jobs_.push_back({std::move(exchange), &group, member});
  return static_cast<uint32_t>(jobs_.size() - 1);
}

Status Communicator::startThread() {
  if (jobs_.empty())
    return Status();
  orders_.resize(tickets_.size() + 1);
  std::string name = "kiln-comm-" + std::to_string(endpoint_.device % 10000);
  Expected<Thread> thread = Thread::start(name.c_str(), [this] { serve(); });
  if (!thread.ok())
    return thread.status();
  thread_.emplace(std::move(*thread));
  return Status();
}

void Communicator::start(uint32_t number, uint64_t repetition) {
  Ticket &ticket = tickets_[jobs_[number].exchange.ticket];
  ++ticket.started;
  orders_[ordered_++ % orders_.size()] = {number, repetition};
  ticket.order = current_ = ordered_;
  orderGate_.open();
}

void Communicator::wait(uint32_t ticket) {
  Ticket &wanted = tickets_[ticket];
  for (uint64_t done; (done = wanted.done.value()) < wanted.started;)
    wanted.done.pass(done, /*looks=*/0);
  current_ = wanted.order;
}

void Communicator::serve() {
  FlushDenormals flush;
  for (uint64_t next = 0;; ++next) {
    orderGate_.pass(next, /*looks=*/0);
    if (isStopping_)
      return;
    Order order = orders_[next % orders_.size()];
    run(order, next + 1);
    tickets_[jobs_[order.job].exchange.ticket].done.open();
  }
}

void Communicator::run(const Order &order, uint64_t number) {
  const Job &job = jobs_[order.job];
  Track::Clock::time_point begin, arrived;
  uint64_t before = endpoint_.receivedBytes;
  if (track_)
    begin = Track::Clock::now();
  job.group->run(job.member, job.exchange, order.repetition, endpoint_,
                 [&] { arrived = Track::Clock::now(); });
  if (!track_)
    return;
  const char *name = job.exchange.name.c_str();
  track_->add({name, "rendezvous", begin, arrived, 0});
  track_->add({name, "transfer", arrived, Track::Clock::now(),
               endpoint_.receivedBytes - before, number});
}

} // namespace kiln
