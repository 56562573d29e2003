// Memory shared by the ranks of a node, and the all-reduce over it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "element.hpp"
#include "state.hpp"
#include "wire.hpp"

namespace cft {

class Shared {
 public:
  // The first local rank makes the segment and gives it a name; throws with the cure if /dev/shm has no room.
  static std::string create(size_t ranks);
  // All local ranks map it; once all have, the first one calls `forget`: from then on a killed rank leaves nothing
  // behind.
  Shared(const std::string& name, size_t local_rank, size_t ranks, State& state);
  static void forget(const std::string& name);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  // Bytes of shared memory that `ranks` ranks need.
  static size_t size(size_t ranks);

  // Reduce `count` elements over the node in place, always in the order of ranks.
  void all_reduce(void* data, size_t count, Element element, Reduction reduction);
  // The same over several nodes: the first local rank passes the node's sums on by `wire`, null on the others.
  void all_reduce(void* data, size_t count, Element element, Reduction reduction, Compression compression,
                  Wire* wire);

 private:
  struct Flag;
  enum Stage { kCopied, kReduced, kWired, kStages };
  Flag& flag(Stage stage, size_t rank) const;
  char* slot(size_t rank, uint32_t piece) const;
  char* result(uint32_t block) const;
  void reach(Stage stage, uint32_t value);
  void await(Stage stage, size_t rank, uint32_t value);
  void await_all(Stage stage, uint32_t value);
  char* block(char* data, size_t bytes, Element element, Reduction reduction, bool take);
  void copy_in(const char* data, size_t bytes, size_t width);
  void reduce(const char* data, size_t bytes, Element element, Reduction reduction, char* out);

  const size_t rank_;
  const size_t ranks_;
  State& state_;
  char* const memory_;
  // Pieces and blocks since the segment was made; equal on all ranks, which run the same operations in one order.
  uint32_t piece_ = 0;
  uint32_t block_ = 0;
};

}  // namespace cft
