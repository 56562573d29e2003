// A oneCCL communicator, and the collectives over it as calls that block the group's thread.
#pragma once

#include <oneapi/ccl.hpp>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <vector>

#include "board.hpp"
#include "element.hpp"
#include "state.hpp"

namespace cft {

// What crosses the wire for float32: itself, or bfloat16 that is summed in float32 and rounded once.
enum class Compression { kNone, kBFloat16 };

// An operation that oneCCL has taken on. Who sees it end deletes it; otherwise, after a failure, it is left behind: oneCCL
// does not return from the destruction of one that runs.
struct LeaveBehind {
  void operator()(ccl::event*) const {}
};
using Event = std::unique_ptr<ccl::event, LeaveBehind>;

class Wire {
 public:
  // Collective over `size` ranks, which meet by `topic`. Blocks; throws after `timeout`.
  static std::unique_ptr<Wire> connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& topic, int rank,
                                       int size, std::shared_ptr<State> state, Milliseconds timeout);
  // Leaves everything as it is, since oneCCL crashes where a peer has failed.
  ~Wire();
  // The regular end, in the same order on all ranks: waits for the peers for a moment, for all wires together.
  static void part(std::initializer_list<std::unique_ptr<Wire>*> wires);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Data in place, summed in the order of ranks: the result does not depend on where in a message an element is.
  void all_reduce(void* data, size_t count, Element element, Reduction reduction, Compression compression);
  // The same for pieces that are made while others are on their way: `open` is called for piece k + 1 before `close`
  // for piece k - 1, which has its sums then.
  struct Pieces {
    size_t number;
    std::function<size_t(size_t)> count;  // elements
    std::function<void*(size_t)> open;
    std::function<void(size_t)> close;
  };
  void all_reduce(const Pieces& pieces, Element element, Reduction reduction, Compression compression);
  void reduce_scatter(const void* in, void* out, size_t count, Element element, Reduction reduction);
  void broadcast(void* data, size_t bytes, int root);
  void all_gather(const void* in, void* out, const std::vector<size_t>& bytes);
  void all_to_all(const void* in, const std::vector<size_t>& in_bytes, void* out, const std::vector<size_t>& out_bytes);
  void barrier();
  // Begin a transfer, or queue it behind others to the same peer; the answer, called again and again, moves it on and
  // says whether it has ended. Never beside collectives of the same communicator, whose messages oneCCL gives the same
  // tags.
  std::function<bool()> send(const void* data, size_t bytes, int peer);
  std::function<bool()> receive(void* data, size_t bytes, int peer);

 private:
  struct Lasting;
  Wire(int rank, int size, std::shared_ptr<State> state, std::shared_ptr<Lasting> lasting);
  void wait(Event event);
  std::function<bool()> transfer(int peer, bool sending, std::function<Event()> begin);
  void gather_and_reduce(void* data, size_t count, Element element, Reduction reduction);
  struct Chunk;
  Chunk prepare(void* data, size_t number, size_t count, Element element, bool packed);
  Event scatter(const Chunk& chunk);
  Event gather(const Chunk& chunk);
  void reduce(const Chunk& chunk, Reduction reduction);

  const int rank_;
  const int size_;
  const std::shared_ptr<State> state_;
  std::shared_ptr<Lasting> lasting_;
  // Transfers to (true) or from a peer that were asked for and that have ended.
  struct Turns {
    uint64_t taken = 0;
    uint64_t ended = 0;
  };
  std::map<std::pair<int, bool>, std::shared_ptr<Turns>> turns_;
};

// The library's version, such as 2021.16.2.
std::string library_version();

}  // namespace cft
