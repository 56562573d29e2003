#include "board.hpp"

#include <thread>

namespace cft {
namespace {

constexpr auto kPause = Milliseconds(5);
constexpr size_t kListed = 8;

}  // namespace

std::string listed(const std::vector<int>& ranks, const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kListed; ++i) {
    const std::string& name = names.at(ranks[i]);
    text += (i ? ", " : "") + (name.empty() ? "rank " + std::to_string(ranks[i]) : name);
  }
  return ranks.size() > kListed ? text + " and " + std::to_string(ranks.size() - kListed) + " more" : text;
}

Board::Board(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size)
    : store_(store), rank_(rank), size_(size) {}

void Board::set(const std::string& key, const std::string& value) {
  store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

std::optional<std::string> Board::get(const std::string& key) {
  if (!store_->check({key})) {
    return std::nullopt;
  }
  const auto bytes = store_->get(key);
  return std::string(bytes.begin(), bytes.end());
}

std::string Board::await(const std::string& key, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (Clock::now() < deadline) {
    if (auto value = get(key)) {
      return *value;
    }
    std::this_thread::sleep_for(kPause);
  }
  raise("nobody has set '" + key + "' within " + std::to_string(timeout.count()) + " ms");
}

std::vector<std::string> Board::exchange(const std::string& topic, const std::string& value, Milliseconds timeout,
                                         const std::vector<std::string>& names) {
  set(topic + "/" + std::to_string(rank_), value);
  const auto deadline = Clock::now() + timeout;
  std::vector<std::string> values(size_);
  std::vector<int> missing;
  for (int peer = 0; peer < size_; ++peer) {
    missing.push_back(peer);
  }
  while (true) {
    std::vector<int> still;
    for (int peer : missing) {
      if (auto found = get(topic + "/" + std::to_string(peer))) {
        values[peer] = *found;
      } else {
        still.push_back(peer);
      }
    }
    if (still.empty()) {
      return values;
    }
    if (Clock::now() > deadline) {
      raise("not all ranks came to form the group within " + std::to_string(timeout.count()) +
            " ms: " + listed(still, names) + " missing at '" + topic + "'");
    }
    missing = std::move(still);
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace cft
