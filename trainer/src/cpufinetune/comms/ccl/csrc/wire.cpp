#include "wire.hpp"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <thread>

#include "calls.hpp"
#include "outlive.hpp"

namespace cft {
namespace {

// Small enough to overlap sending, adding and sending on, large enough for TCP to run at full speed.
constexpr size_t kChunk = 4 << 20;
// Below this a message costs its delay only: everyone sends everything to everyone, in one step instead of two.
constexpr size_t kSmall = 16 << 10;
constexpr int kTests = 100;
constexpr auto kFarewell = std::chrono::seconds(5);

}  // namespace

std::string library_version() {
  const auto version = ccl::get_library_version();
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.update);
}

std::unique_ptr<Wire> Wire::connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& topic, int rank,
                                    int size, std::shared_ptr<State> state, Milliseconds timeout) {
  outlive_worker();
  auto lasting = std::make_shared<Lasting>();
  lasting->kvs = std::make_shared<Kvs>(store, topic);
  auto done = std::make_shared<std::promise<void>>();
  auto future = done->get_future();
  // Nothing ends a creation for which a peer is missing: only the thread can be left behind.
  std::thread([=] {
    try {
      guarded("creating a communicator", nursery(), [&] {
        ccl::init();
        lasting->communicator =
            std::make_unique<ccl::communicator>(ccl::create_communicator(size, rank, lasting->kvs));
      });
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  }).detach();
  if (future.wait_for(timeout) != std::future_status::ready) {
    lasting->kvs->abandon();
    end_without_oneccl();
    raise("oneCCL could not connect " + std::to_string(size) + " ranks within " + std::to_string(timeout.count()) +
          " ms: a rank has died meanwhile, or its port is not reachable through the interface in FI_TCP_IFACE");
  }
  future.get();
  return std::unique_ptr<Wire>(new Wire(rank, size, std::move(state), std::move(lasting)));
}

Wire::Wire(int rank, int size, std::shared_ptr<State> state, std::shared_ptr<Lasting> lasting)
    : rank_(rank), size_(size), state_(std::move(state)), lasting_(std::move(lasting)) {}

Wire::~Wire() {
  if (lasting_) {
    new std::shared_ptr<Lasting>(lasting_);
    end_without_oneccl();
  }
}

void Wire::part(std::initializer_list<std::unique_ptr<Wire>*> wires) {
  auto* kept = new std::vector<std::shared_ptr<Lasting>>;
  for (auto* wire : wires) {
    if (*wire) {
      kept->push_back(std::move((*wire)->lasting_));
    }
  }
  auto done = std::make_shared<std::promise<void>>();
  auto future = done->get_future();
  std::thread([kept, done] {
    delete kept;
    done->set_value();
  }).detach();
  if (future.wait_for(kFarewell) != std::future_status::ready) {
    end_without_oneccl();
  }
}

void Wire::wait(Event event) {
  ccl::event* const running = event.release();
  const auto since = Clock::now();
  for (int spin = 0; !running->test(); ++spin) {
    if (state_->idle) {
      state_->idle();
    }
    if (spin < kTests) {
      __builtin_ia32_pause();
      continue;
    }
    state_->check();
    // The longer it has taken, the less a late look costs; the core belongs to the computation.
    const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - since).count();
    const timespec nap = {0, static_cast<long>(std::clamp<int64_t>(passed / 16, 20'000, 500'000))};
    nanosleep(&nap, nullptr);
  }
  delete running;
}

// One chunk of an all-reduce: `element` is what crosses the wire.
struct Wire::Chunk {
  char* data;
  std::vector<size_t> counts;
  size_t offset;  // of this rank's share, in elements
  Element element;
  char* received;
};

Event Wire::scatter(const Chunk& chunk) {
  const size_t width = size_of(chunk.element);
  std::vector<size_t> outgoing(size_), incoming(size_, chunk.counts[rank_] * width);
  for (int peer = 0; peer < size_; ++peer) {
    outgoing[peer] = chunk.counts[peer] * width;
  }
  return start("all_reduce", [&] {
    return ccl::alltoallv(chunk.data, outgoing, chunk.received, incoming, ccl::datatype::uint8,
                          *lasting_->communicator);
  });
}

void Wire::reduce(const Chunk& chunk, Reduction reduction) {
  const size_t width = size_of(chunk.element);
  const size_t count = chunk.counts[rank_];
  std::vector<const void*> rows(size_);
  for (int peer = 0; peer < size_; ++peer) {
    rows[peer] = chunk.received + peer * count * width;
  }
  reduce_rows(chunk.data + chunk.offset * width, rows.data(), size_, count, chunk.element, reduction);
}

Event Wire::gather(const Chunk& chunk) {
  const size_t width = size_of(chunk.element);
  std::vector<size_t> bytes(size_);
  for (int peer = 0; peer < size_; ++peer) {
    bytes[peer] = chunk.counts[peer] * width;
  }
  return start("all_reduce", [&] {
    return ccl::allgatherv(chunk.data + chunk.offset * width, bytes[rank_], chunk.data, bytes, ccl::datatype::uint8,
                           *lasting_->communicator);
  });
}

void Wire::all_reduce(void* data, size_t count, Element element, Reduction reduction, Compression compression) {
  const size_t width = size_of(element);
  if (size_ == 1 || count == 0) {
    return;
  }
  if (compression == Compression::kNone && count * width * size_ <= kSmall) {
    gather_and_reduce(data, count, element, reduction);
    return;
  }
  const size_t step = kChunk / width;
  const Pieces pieces{(count + step - 1) / step, [=](size_t number) { return std::min(step, count - number * step); },
                      [=](size_t number) { return static_cast<char*>(data) + number * kChunk; }, [](size_t) {}};
  all_reduce(pieces, element, reduction, compression);
}

Wire::Chunk Wire::prepare(void* data, size_t number, size_t count, Element element, bool packed) {
  Chunk chunk{static_cast<char*>(data), std::vector<size_t>(size_), 0, element, nullptr};
  for (int peer = 0; peer < size_; ++peer) {
    const size_t begin = count * peer / size_;
    chunk.counts[peer] = count * (peer + 1) / size_ - begin;
    chunk.offset = peer == rank_ ? begin : chunk.offset;
  }
  if (packed) {
    auto& buffer = lasting_->packed[number % 3];
    buffer.resize(std::max(buffer.size(), count * size_of(Element::kBFloat16)));
    to_bfloat16(static_cast<const float*>(data), buffer.data(), count);
    chunk.element = Element::kBFloat16;
    chunk.data = buffer.data();
  }
  auto& buffer = lasting_->received[number % 2];
  buffer.resize(std::max(buffer.size(), chunk.counts[rank_] * size_of(chunk.element) * size_));
  chunk.received = buffer.data();
  return chunk;
}

// Each rank receives its share of every chunk from everyone, adds, and sends the sum to everyone: the bytes of a ring,
// but every element is added in the order of ranks and rounded once. While a chunk is added the next one is on its
// way and the one before returns. All ranks start these transfers in the same order, by which oneCCL matches them.
void Wire::all_reduce(const Pieces& pieces, Element element, Reduction reduction, Compression compression) {
  const bool packed = compression == Compression::kBFloat16 && element == Element::kFloat32;
  std::vector<void*> data(pieces.number);
  const auto open = [&](size_t number) {
    data[number] = pieces.open(number);
    return prepare(data[number], number, pieces.count(number), element, packed);
  };
  const auto close = [&](size_t number) {
    if (packed) {
      from_bfloat16(lasting_->packed[number % 3].data(), static_cast<float*>(data[number]), pieces.count(number));
    }
    pieces.close(number);
  };
  Chunk next = open(0);
  Event scattering = scatter(next);
  Event gathering;
  for (size_t number = 0; number < pieces.number; ++number) {
    const Chunk chunk = std::move(next);
    Event arriving = std::move(scattering);
    if (number + 1 < pieces.number) {
      next = open(number + 1);
      scattering = scatter(next);
    }
    wait(std::move(arriving));
    reduce(chunk, reduction);
    Event returning = gather(chunk);
    if (number > 0) {
      wait(std::move(gathering));
      close(number - 1);
    }
    gathering = std::move(returning);
  }
  wait(std::move(gathering));
  close(pieces.number - 1);
}

void Wire::gather_and_reduce(void* data, size_t count, Element element, Reduction reduction) {
  const size_t bytes = count * size_of(element);
  auto& all = lasting_->received[0];
  all.resize(std::max(all.size(), bytes * size_));
  all_gather(data, all.data(), std::vector<size_t>(size_, bytes));
  std::vector<const void*> rows(size_);
  for (int peer = 0; peer < size_; ++peer) {
    rows[peer] = all.data() + peer * bytes;
  }
  reduce_rows(data, rows.data(), size_, count, element, reduction);
}

void Wire::reduce_scatter(const void* in, void* out, size_t count, Element element, Reduction reduction) {
  const std::vector<size_t> bytes(size_, count * size_of(element));
  const Scratch received(bytes[0] * size_);
  all_to_all(in, bytes, received.data(), bytes);
  std::vector<const void*> rows(size_);
  for (int peer = 0; peer < size_; ++peer) {
    rows[peer] = received.data() + peer * bytes[0];
  }
  reduce_rows(out, rows.data(), size_, count, element, reduction);
}

void Wire::broadcast(void* data, size_t bytes, int root) {
  if (bytes != 0) {
    wait(start("broadcast", [&] {
      return ccl::broadcast(data, bytes, ccl::datatype::uint8, root, *lasting_->communicator);
    }));
  }
}

void Wire::all_gather(const void* in, void* out, const std::vector<size_t>& bytes) {
  if (std::any_of(bytes.begin(), bytes.end(), [](size_t count) { return count != 0; })) {
    wait(start("all_gather", [&] {
      return ccl::allgatherv(in, bytes[rank_], out, bytes, ccl::datatype::uint8, *lasting_->communicator);
    }));
  }
}

void Wire::all_to_all(const void* in, const std::vector<size_t>& in_bytes, void* out,
                      const std::vector<size_t>& out_bytes) {
  wait(start("all_to_all", [&] {
    return ccl::alltoallv(in, in_bytes, out, out_bytes, ccl::datatype::uint8, *lasting_->communicator);
  }));
}

void Wire::barrier() {
  const Scratch token(1), all(size_);
  *token.data() = 0;
  all_gather(token.data(), all.data(), std::vector<size_t>(size_, 1));
}

}  // namespace cft
