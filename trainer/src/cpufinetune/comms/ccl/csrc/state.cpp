#include "state.hpp"

#include <c10/util/Exception.h>

namespace cft {
namespace {

// A host that vanishes closes no connection: the watchdog then waits for the store for ever.
constexpr auto kSilent = std::chrono::seconds(8);

std::atomic<Clock::rep> broken_at{0};
std::string broken_why;

}  // namespace

void raise(const std::string& message) {
  C10_THROW_ERROR(DistBackendError, message);
}

void State::fail(const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_.load(std::memory_order_relaxed)) {
    reason_ = reason;
    failed_.store(true, std::memory_order_release);
  }
}

std::string State::reason() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reason_;
}

void State::check() {
  const auto heard = Clock::time_point(Clock::duration(heard_.load(std::memory_order_relaxed)));
  if (!failed() && Clock::now() - heard > kSilent) {
    fail("the store that rank 0 keeps has been silent for " + std::to_string(kSilent.count()) + " s: " + names[0] +
         " is stopped or out of reach");
  }
  const auto broken = broken_at.load(std::memory_order_acquire);
  // Longer than the watchdog needs to find a dead rank.
  if (!failed() && broken != 0 && Clock::now() - Clock::time_point(Clock::duration(broken)) > kSilent) {
    fail("a connection to another rank broke: " + broken_why);
  }
  if (failed()) {
    raise(reason());
  }
}

void State::broken(const std::string& why) {
  static std::once_flag once;
  std::call_once(once, [&] {
    broken_why = why;
    broken_at.store(Clock::now().time_since_epoch().count(), std::memory_order_release);
  });
}

void State::begin(Running running) {
  std::lock_guard<std::mutex> lock(mutex_);
  running_ = std::move(running);
}

void State::end(uint64_t sequence) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (sequence != 0) {
    finished_.store(sequence, std::memory_order_relaxed);
  }
  running_ = {};
}

State::Running State::running() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return running_;
}

}  // namespace cft
