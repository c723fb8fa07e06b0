// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_STATUS_H
#define KILN_RUNTIME_STATUS_H

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace kiln {

/// Why something did not happen. The values are the exit codes of the command.
enum class Code : int {
  ok = 0,
  failed = 1,
  usage = 2,
  noPlan = 3,
  inputRejected = 4,
  io = 5,
  rankLost = 6,
  timedOut = 7,
  notFinite = 8,
  internal = 70,
  stopped = 75,
};

/// Success, or a code with a message that says what was found and what was
/// wanted.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Code code, std::string message)
      : code_(code), exit_(static_cast<int>(code)),
        message_(std::move(message)) {}

  /// Stopped by a signal with nothing saved: the exit code is that of the
  /// signal, because 75 promises a checkpoint.
  static Status interrupted(int signal, std::string message) {
    Status status(Code::stopped, std::move(message));
    status.exit_ = 128 + signal;
    return status;
  }

  bool ok() const { return code_ == Code::ok; }
  explicit operator bool() const { return ok(); }
  Code code() const { return code_; }
  int exitCode() const { return exit_; }
  const std::string &message() const { return message_; }

private:
  Code code_ = Code::ok;
  int exit_ = 0;
  std::string message_;
};

/// A value or the reason why there is none. Ask `ok()` before the value.
template <typename T> class [[nodiscard]] Expected {
public:
  Expected(T value) : value_(std::move(value)) {}
  Expected(Status status) : status_(std::move(status)) {
    assert(!status_.ok() && "success must carry a value");
  }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status &status() const { return status_; }
  T &operator*() { return *value_; }
  const T &operator*() const { return *value_; }
  T *operator->() { return &*value_; }
  const T *operator->() const { return &*value_; }

private:
  std::optional<T> value_;
  Status status_;
};

} // namespace kiln

#endif // KILN_RUNTIME_STATUS_H
