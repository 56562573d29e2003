// The ranks of a process group: how they are connected, and the all-reduce that makes use of it.
#pragma once

#include <memory>
#include <string>

#include "board.hpp"
#include "shared.hpp"
#include "state.hpp"
#include "watchdog.hpp"
#include "wire.hpp"

namespace cft {

class Group {
 public:
  // Collective; all of it within `timeout`. Throws with the names of the ranks that are missing.
  Group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout);
  // Collective too; waits for late peers for some seconds.
  ~Group();

  // On the group's thread only.
  void all_reduce(void* data, size_t count, Element element, Reduction reduction, Compression compression);
  Wire& wire() { return *wire_; }
  Wire& transfers() { return *transfers_; }

  const std::shared_ptr<State>& state() const { return state_; }
  // For people: how all-reduces go.
  const std::string& topology() const { return topology_; }

 private:
  void share(Board& board, Milliseconds timeout);

  const std::shared_ptr<State> state_;
  // The very object, not a copy: on rank 0 the server lives as long as it, and the others need it to leave.
  const c10::intrusive_ptr<c10d::Store> store_;
  // The group's own connection, which calls of other threads do not hold up. One for everything: torch asks the name
  // service for the peer's name at each, which may take seconds.
  const c10::intrusive_ptr<c10d::Store> connection_;
  std::unique_ptr<Shared> shared_;
  // All ranks; and the first rank of each node, where there are several nodes and more ranks than nodes.
  std::unique_ptr<Wire> wire_;
  // All ranks too, for transfers between two of them alone.
  std::unique_ptr<Wire> transfers_;
  std::unique_ptr<Wire> leaders_;
  size_t nodes_ = 1;
  std::string topology_;
  // Last: it must be gone before what it watches.
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace cft
