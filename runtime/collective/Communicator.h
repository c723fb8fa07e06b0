// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_COMMUNICATOR_H
#define KILN_RUNTIME_COLLECTIVE_COMMUNICATOR_H

#include "runtime/collective/Group.h"
#include "runtime/thread/Thread.h"
#include "runtime/trace/Trace.h"

#include <deque>

namespace kiln {

/// The collectives of one device, run by a thread of their own in the order in
/// which they are started. `start` and `wait` are called by one thread and
/// allocate nothing.
class Communicator {
public:
  /// The track may be null.
  Communicator(uint32_t device, const CollectiveSettings &settings,
               Track *track)
      : endpoint_(device, settings), track_(track) {}
  ~Communicator();
  Communicator(const Communicator &) = delete;

  /// Adds a collective before the thread is started, and returns its number.
  uint32_t add(Exchange exchange, Group &group);
  /// `failed` if the system refuses a thread.
  Status startThread();

  /// Starts a collective; its ticket must not be in use.
  void start(uint32_t number, uint64_t repetition);
  /// Returns when the collective last started with the ticket is done.
  void wait(uint32_t ticket);
  /// The collective of the last `start` or `wait`: all that were started,
  /// counted from 1.
  uint64_t current() const { return current_; }

  /// Bytes taken from other devices. No collective may be running.
  uint64_t receivedBytes() const { return endpoint_.receivedBytes; }

private:
  struct Job {
    Exchange exchange;
    Group *group;
    uint32_t member;
  };
  struct Order {
    uint32_t job;
    uint64_t repetition;
  };
  struct Ticket {
    uint64_t started = 0; // How often; of the thread that starts.
    uint64_t order = 0;   // Of its last start, from 1.
    Gate done;
  };

  void serve();
  /// `number` counts all orders, from 1.
  void run(const Order &order, uint64_t number);

  Endpoint endpoint_;
  Track *track_;
  std::vector<Job> jobs_;
  std::deque<Ticket> tickets_;
  std::vector<Order> orders_; // A ring: no ticket is in it twice.
  uint64_t ordered_ = 0, current_ = 0;
  bool isStopping_ = false;
  Gate orderGate_;
  std::optional<Thread> thread_;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_COMMUNICATOR_H
