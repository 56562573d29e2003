#include "engine.hpp"

#include <sys/prctl.h>

#include <string>

namespace cft {
namespace {

// Between two looks at transfers when there is nothing else to do.
constexpr auto kPoll = std::chrono::microseconds(50);
// Naps of some microseconds are rounded up to 50 by default.
constexpr unsigned long kTimerSlack = 1000;

}  // namespace

Engine::Engine(std::shared_ptr<State> state) : state_(std::move(state)), thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Engine::submit(Operation operation) {
  state_->check();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(operation));
  }
  wake_.notify_all();
}

void Engine::run() {
  pthread_setname_np(pthread_self(), "ccl-engine");
  prctl(PR_SET_TIMERSLACK, kTimerSlack);
  Operation operation;
  while (next(operation)) {
    if (operation.work) {
      execute(operation);
      operation = {};
    }
    poll();
  }
}

// Wait for something to do; an empty operation means that transfers want a look.
bool Engine::next(Operation& operation) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto ready = [&] { return stopping_ || !queue_.empty(); };
  if (transfers_.empty()) {
    wake_.wait(lock, ready);
  } else {
    wake_.wait_for(lock, kPoll, ready);
  }
  if (!queue_.empty()) {
    operation = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }
  return !stopping_ || !transfers_.empty();
}

State::Running Engine::describe(const Operation& operation) const {
  return {operation.sequence, operation.what, Clock::now(), operation.enqueued + operation.timeout,
          operation.timeout, operation.peer};
}

void Engine::execute(Operation& operation) {
  try {
    state_->check();
    if (operation.transfer) {
      auto done = operation.transfer();
      transfers_.push_back({std::move(operation), std::move(done)});
      if (transfers_.size() == 1) {
        state_->begin(describe(transfers_.front().operation));
      }
      return;
    }
    state_->begin(describe(operation));
    collective_ = true;
    operation.run();
    collective_ = false;
    state_->end(operation.sequence);
    operation.work->succeed();
    if (!transfers_.empty()) {
      state_->begin(describe(transfers_.front().operation));
    }
  } catch (...) {
    collective_ = false;
    fail(operation, std::current_exception());
  }
}

bool Engine::poll() {
  if (!transfers_.empty() && !collective_) {
    try {
      state_->check();
    } catch (...) {
      for (auto& transfer : transfers_) {
        fail(transfer.operation, std::current_exception());
      }
      transfers_.clear();
      return false;
    }
  }
  for (auto transfer = transfers_.begin(); transfer != transfers_.end();) {
    if (!ended(*transfer)) {
      ++transfer;
      continue;
    }
    auto work = transfer->operation.work;
    const bool watched = transfer == transfers_.begin();
    transfer = transfers_.erase(transfer);
    if (watched && !collective_) {
      state_->end(0);
      if (!transfers_.empty()) {
        state_->begin(describe(transfers_.front().operation));
      }
    }
    work->succeed();
  }
  return !transfers_.empty();
}

bool Engine::ended(Transfer& transfer) {
  const auto& operation = transfer.operation;
  try {
    if (transfer.done()) {
      return true;
    }
  } catch (const std::exception& error) {
    state_->fail(operation.what + ": " + error.what());
  }
  if (Clock::now() > operation.enqueued + operation.timeout) {
    state_->fail(operation.what + " did not end within " + std::to_string(operation.timeout.count()) + " ms: " +
                 state_->names[operation.peer] + " did not answer it");
  }
  return false;
}

void Engine::fail(Operation& operation, const std::exception_ptr& error) {
  std::string reason;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& found) {
    reason = found.what_without_backtrace();
  } catch (const std::exception& found) {
    reason = found.what();
  }
  state_->fail(reason);
  operation.work->leak_tensors();
  operation.work->fail(error);
}

}  // namespace cft
