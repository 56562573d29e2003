#include "watchdog.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace cft {
namespace {

constexpr auto kBeat = Milliseconds(500);
// A shorter wait is everyday life; looking at everybody's signs costs rank 0's store.
constexpr auto kLong = Milliseconds(1000);
// Without a sign for this long a peer is taken for dead. A busy machine starves a sleeping thread for less.
constexpr auto kDead = Milliseconds(5000);
// For the last words of this thread when the group goes; it may be stuck with a host that has vanished.
constexpr auto kLastWords = Milliseconds(1000);

std::string beat_key(int rank) {
  return "beat/" + std::to_string(rank);
}

const char* const kFailure = "failure";
// Before the number of the last collective that a rank took part in.
const std::string kLeft = "left ";

bool has_left(const std::string& beat) {
  return beat.rfind(kLeft, 0) == 0;
}

// The number of the last collective that a rank has begun or ended.
uint64_t reached(const std::string& beat) {
  return std::strtoull(beat.c_str() + (has_left(beat) ? kLeft.size() : 0), nullptr, 10);
}

}  // namespace

struct Watchdog::Shared {
  std::shared_ptr<State> state;
  std::unique_ptr<Board> board;
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  bool ended = false;
  bool silent = false;

  struct Seen {
    std::string value;
    Clock::time_point at;
  };
  std::map<int, Seen> seen;
  bool told = false;

  void tick(uint64_t count);
  void look(const State::Running& running);
  // Who has not come to the operation of this number.
  std::string absent(uint64_t sequence);
};

void Watchdog::Shared::tick(uint64_t count) {
  const auto running = state->running();
  // The failure first: who is waiting for this rank must hear why before missing its signs.
  if (state->failed() && !told) {
    board->set(kFailure, state->reason());
    told = true;
  }
  const uint64_t number = running.sequence != 0 && running.peer < 0 ? running.sequence : state->finished();
  board->set(beat_key(state->rank), std::to_string(number) + " " + std::to_string(count));
  const auto now = Clock::now();
  if (running.sequence == 0 || state->failed()) {
    seen.clear();
  } else if (now > running.deadline) {
    state->fail(running.what + " did not end within " + std::to_string(running.timeout.count()) + " ms: " +
                (running.peer < 0 ? absent(running.sequence) : state->names[running.peer] + " did not answer it"));
  } else if (now - running.since > kLong) {
    look(running);
  }
}

std::string Watchdog::Shared::absent(uint64_t sequence) {
  std::vector<int> ranks;
  for (int peer = 0; peer < state->size; ++peer) {
    if (peer != state->rank && reached(board->get(beat_key(peer)).value_or("0")) < sequence) {
      ranks.push_back(peer);
    }
  }
  return ranks.empty() ? "all ranks have called it, but their data does not arrive"
                       : listed(ranks, state->names) + " did not call it";
}

void Watchdog::Shared::look(const State::Running& running) {
  if (auto failure = board->get(kFailure)) {
    state->fail(*failure);
    return;
  }
  const auto now = Clock::now();
  for (int peer = 0; peer < state->size; ++peer) {
    if (peer == state->rank || (running.peer >= 0 && peer != running.peer)) {
      continue;
    }
    const std::string value = board->get(beat_key(peer)).value_or("");
    auto [entry, fresh] = seen.try_emplace(peer, Seen{value, now});
    if (entry->second.value != value) {
      entry->second = {value, now};
    } else if (has_left(value)) {
      // It may have done its part of this operation already.
      if (now - entry->second.at <= kLong || (running.peer < 0 && reached(value) >= running.sequence)) {
        continue;
      }
      state->fail(running.what + ": " + state->names[peer] + " has left the group");
      return;
    } else if (now - entry->second.at > kDead) {
      state->fail(running.what + ": " + state->names[peer] + " gave no sign of life for " +
                  std::to_string(std::chrono::duration_cast<Milliseconds>(now - entry->second.at).count()) + " ms");
      return;
    }
  }
}

Watchdog::Watchdog(std::shared_ptr<State> state, std::unique_ptr<Board> board) : shared_(std::make_shared<Shared>()) {
  shared_->state = std::move(state);
  shared_->board = std::move(board);
  thread_ = std::thread(run, shared_);
}

void Watchdog::run(const std::shared_ptr<Shared>& shared) {
  pthread_setname_np(pthread_self(), "ccl-watchdog");
  uint64_t count = 0;
  std::unique_lock<std::mutex> lock(shared->mutex);
  try {
    while (!shared->stopping) {
      lock.unlock();
      shared->tick(++count);
      shared->state->heard();
      lock.lock();
      const auto running = shared->state->running();
      const auto next = Clock::now() + kBeat;
      shared->wake.wait_until(lock, running.sequence != 0 ? std::min(next, running.deadline + Milliseconds(1)) : next,
                              [&] { return shared->stopping; });
    }
    lock.unlock();
    if (shared->state->failed() && !shared->told) {
      shared->board->set(kFailure, shared->state->reason());
    } else {
      shared->board->set(beat_key(shared->state->rank), kLeft + std::to_string(shared->state->finished()));
    }
    lock.lock();
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) {
      lock.lock();
    }
    shared->silent = true;
    // Rank 0 keeps the store; at a regular end it may go first.
    if (!shared->stopping) {
      shared->state->fail("the store that rank 0 keeps does not answer: " + shared->state->names[0] +
                          " has ended or is out of reach");
    }
  }
  shared->ended = true;
  shared->wake.notify_all();
}

Watchdog::~Watchdog() {
  stop();
}

bool Watchdog::stop() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->stopping = true;
  shared_->wake.notify_all();
  const bool ended = shared_->wake.wait_for(lock, kLastWords, [&] { return shared_->ended; });
  const bool answered = ended && !shared_->silent;
  lock.unlock();
  if (thread_.joinable() && ended) {
    thread_.join();
  } else if (thread_.joinable()) {
    thread_.detach();
  }
  return answered;
}

}  // namespace cft
