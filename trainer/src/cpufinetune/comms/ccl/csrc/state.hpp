// What the threads of a group share: whether it failed and why, and which operation is running.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace cft {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Outlives the group while a thread is stuck inside oneCCL, which cannot be interrupted.
class State {
 public:
  State(int rank, int size) : rank(rank), size(size), names(size) {}

  const int rank;
  const int size;
  // How people call each rank: `rank 3 (pod-1)`. Written before the threads start.
  std::vector<std::string> names;

  // The first reason wins; everything after it fails with the same words.
  void fail(const std::string& reason);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  std::string reason() const;
  // Throws DistBackendError once the group has failed, or once nobody watches over it any more.
  void check();
  // oneCCL works no more in this process. Every group fails in a while, if it does not find out before which rank died.
  static void broken(const std::string& why);
  // Called by the group's thread while it waits, to move transfers on that run beside the collectives; says whether
  // there are any.
  std::function<bool()> idle;
  // Called by the watchdog whenever the store has answered.
  void heard() { heard_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed); }

  // The operation in execution; the watchdog tells a slow peer from a dead one by it.
  struct Running {
    uint64_t sequence;  // 0: none
    std::string what;
    Clock::time_point since;
    Clock::time_point deadline;
    Milliseconds timeout;
    int peer = -1;  // of a transfer between two; else all take part
  };
  void begin(Running running);
  // `sequence` 0 leaves the count of collectives as it is.
  void end(uint64_t sequence);
  Running running() const;
  uint64_t finished() const { return finished_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> finished_{0};
  std::atomic<Clock::rep> heard_{Clock::now().time_since_epoch().count()};
  mutable std::mutex mutex_;
  std::string reason_;
  Running running_{};
};

[[noreturn]] void raise(const std::string& message);

}  // namespace cft
