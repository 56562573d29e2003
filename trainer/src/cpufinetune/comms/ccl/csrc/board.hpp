// The group's notice board in the c10d store: who is where, who lives, what went wrong.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <optional>
#include <string>
#include <vector>

#include "state.hpp"

namespace cft {

class Board {
 public:
  // `store` should be a connection that no other thread makes long calls on.
  Board(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key);
  // Wait for somebody to set a key.
  std::string await(const std::string& key, Milliseconds timeout);

  // Post a value and collect everyone's; names the ranks that did not come within `timeout`.
  std::vector<std::string> exchange(const std::string& topic, const std::string& value, Milliseconds timeout,
                                    const std::vector<std::string>& names);

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
};

// A comma-separated list of the named ranks, shortened after eight.
std::string listed(const std::vector<int>& ranks, const std::vector<std::string>& names);

}  // namespace cft
