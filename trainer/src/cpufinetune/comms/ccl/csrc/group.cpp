#include "group.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

namespace cft {
namespace {

const char* const kOk = "ok";
constexpr auto kGoodbye = Milliseconds(5000);

std::string host() {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  return name;
}

// Ranks with equal texts see the same /dev/shm. CPUFINETUNE_NODE tells simulated nodes of one machine apart.
std::string place() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat found = {};
  stat("/dev/shm", &found);
  const char* node = std::getenv("CPUFINETUNE_NODE");
  return boot + " " + std::to_string(found.st_dev) + " " + (node ? node : "");
}

bool wanted() {
  const char* value = std::getenv("CPUFINETUNE_SHARED_MEMORY");
  return value == nullptr || std::string(value) != "0";
}

}  // namespace

Group::Group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout)
    : state_(std::make_shared<State>(rank, size)), store_(store), connection_(store->clone()) {
  auto board = std::make_unique<Board>(connection_, rank, size);
  const auto hosts = board->exchange("who", host(), timeout, state_->names);
  for (int peer = 0; peer < size; ++peer) {
    state_->names[peer] = "rank " + std::to_string(peer) + " (" + hosts[peer] + ")";
  }
  wire_ = Wire::connect(connection_, "wire", rank, size, state_, timeout);
  transfers_ = Wire::connect(connection_, "transfers", rank, size, state_, timeout);
  share(*board, timeout);
  // Forming may have taken longer than the store may be silent.
  state_->heard();
  watchdog_ = std::make_unique<Watchdog>(state_, std::move(board));
}

// Find out who shares memory, and set it up if anybody does. It is used by all or by none, as the order of additions
// depends on it.
void Group::share(Board& board, Milliseconds timeout) {
  const auto places = board.exchange("place", wanted() ? place() : "", timeout, state_->names);
  std::map<std::string, std::vector<int>> nodes;
  for (int peer = 0; peer < state_->size; ++peer) {
    nodes[places[peer].empty() ? std::to_string(peer) : places[peer]].push_back(peer);
  }
  nodes_ = nodes.size();
  const std::string across = std::to_string(state_->size) + " ranks over oneCCL";
  if (nodes_ == static_cast<size_t>(state_->size)) {
    topology_ = across;
    return;
  }
  const auto& local = nodes[places[state_->rank].empty() ? std::to_string(state_->rank) : places[state_->rank]];
  const size_t local_rank = std::find(local.begin(), local.end(), state_->rank) - local.begin();
  const std::string segment = "segment/" + std::to_string(local[0]);
  std::string name, outcome = kOk;
  try {
    if (local_rank == 0) {
      name = Shared::create(local.size());
      board.set(segment, name);
    } else {
      name = board.await(segment, timeout);
    }
    shared_ = std::make_unique<Shared>(name, local_rank, local.size(), *state_);
  } catch (const c10::Error& error) {
    outcome = error.what_without_backtrace();
    board.set(segment, "");
  }
  // Whatever happens: the name must not outlive the meeting, and a rank may have died on its way to it.
  const auto forget = [](const std::string* made) { Shared::forget(*made); };
  std::unique_ptr<const std::string, decltype(forget)> guard(local_rank == 0 ? &name : nullptr, forget);
  const auto outcomes = board.exchange("shared", outcome, timeout, state_->names);
  guard.reset();
  const auto bad = std::find_if(outcomes.begin(), outcomes.end(), [](const auto& text) { return text != kOk; });
  if (bad != outcomes.end()) {
    shared_.reset();
    topology_ = across + "; no shared memory: " + state_->names[bad - outcomes.begin()] + ": " + *bad;
    return;
  }
  topology_ = std::to_string(state_->size) + " ranks in shared memory";
  if (nodes_ == 1) {
    return;
  }
  topology_ = std::to_string(state_->size) + " ranks in shared memory on " + std::to_string(nodes_) +
              " nodes, one of each over oneCCL";
  if (local_rank == 0) {
    std::vector<int> first;
    for (const auto& [where, ranks] : nodes) {
      first.push_back(ranks[0]);
    }
    std::sort(first.begin(), first.end());
    const int number = std::find(first.begin(), first.end(), state_->rank) - first.begin();
    leaders_ = Wire::connect(connection_, "leaders", number, static_cast<int>(nodes_), state_, timeout);
  }
}

Group::~Group() {
  const bool answered = watchdog_->stop();
  if (state_->failed()) {
    // oneCCL may still write into it.
    shared_.release();
    return;
  }
  Wire::part({&leaders_, &transfers_, &wire_});
  if (!answered) {
    return;
  }
  // Rank 0 takes the store along when it goes.
  try {
    Board board(connection_, state_->rank, state_->size);
    if (state_->rank == 0) {
      board.exchange("gone", "", kGoodbye, state_->names);
    } else {
      board.set("gone/" + std::to_string(state_->rank), "");
    }
  } catch (const std::exception&) {
    // Whoever is missing has other troubles, and tells of them.
  }
}

void Group::all_reduce(void* data, size_t count, Element element, Reduction reduction, Compression compression) {
  if (!shared_) {
    wire_->all_reduce(data, count, element, reduction, compression);
  } else if (nodes_ == 1) {
    shared_->all_reduce(data, count, element, reduction);
  } else {
    shared_->all_reduce(data, count, element, reduction, compression, leaders_.get());
  }
}

}  // namespace cft
