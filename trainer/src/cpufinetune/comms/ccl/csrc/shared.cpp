#include "shared.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <random>

namespace cft {
namespace {

// A piece stays in the second-level cache from one stage to the next. A block is what crosses the wire at once; three
// are in use when one is made, one is on its way, and one is taken out.
constexpr size_t kPiece = 256 << 10;
constexpr size_t kBlock = 4 << 20;
constexpr size_t kBlocks = 3;
constexpr size_t kLine = 64;
constexpr int kLooks = 200;
// How long a sleeping rank takes to notice that the group has failed.
constexpr timespec kNap = {0, 50'000'000};
// The same while transfers need looks.
constexpr timespec kShortNap = {0, 100'000};

}  // namespace

// On a cache line of its own. Zero in fresh memory, which is how it must begin.
struct alignas(kLine) Shared::Flag {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

size_t Shared::size(size_t ranks) {
  return kStages * ranks * sizeof(Flag) + 2 * ranks * kPiece + kBlocks * kBlock;
}

std::string Shared::create(size_t ranks) {
  std::random_device random;
  const std::string name = "/cpufinetune-" + std::to_string(getpid()) + "-" + std::to_string(random());
  const int descriptor = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (descriptor < 0) {
    raise("shared memory cannot be made in /dev/shm: " + std::string(std::strerror(errno)));
  }
  // Takes the memory now: a page that is missing later would end the process with SIGBUS.
  const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(size(ranks)));
  close(descriptor);
  if (error != 0) {
    forget(name);
    raise("/dev/shm has no room for " + std::to_string((size(ranks) >> 20) + 1) + " MiB (" + std::strerror(error) +
          "): raise spec.node.sharedMemory");
  }
  return name;
}

void Shared::forget(const std::string& name) {
  shm_unlink(name.c_str());
}

namespace {

char* map(const std::string& name, size_t size) {
  const int descriptor = shm_open(name.c_str(), O_RDWR, 0600);
  if (descriptor < 0) {
    raise("shared memory " + name + " cannot be opened: " + std::strerror(errno));
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) {
    raise("shared memory " + name + " cannot be mapped: " + std::strerror(errno));
  }
  return static_cast<char*>(memory);
}

// Where the share of `rank` begins when `bytes` are divided among `ranks`, in whole elements.
size_t share(size_t bytes, size_t width, size_t rank, size_t ranks) {
  return bytes / width * rank / ranks * width;
}

}  // namespace

Shared::Shared(const std::string& name, size_t local_rank, size_t ranks, State& state)
    : rank_(local_rank), ranks_(ranks), state_(state), memory_(map(name, size(ranks))) {}

Shared::~Shared() {
  munmap(memory_, size(ranks_));
}

Shared::Flag& Shared::flag(Stage stage, size_t rank) const {
  return reinterpret_cast<Flag*>(memory_)[stage * ranks_ + rank];
}

char* Shared::slot(size_t rank, uint32_t piece) const {
  return memory_ + kStages * ranks_ * sizeof(Flag) + (2 * rank + piece % 2) * kPiece;
}

char* Shared::result(uint32_t block) const {
  return memory_ + kStages * ranks_ * sizeof(Flag) + 2 * ranks_ * kPiece + block % kBlocks * kBlock;
}

void Shared::reach(Stage stage, uint32_t value) {
  Flag& mine = flag(stage, rank_);
  mine.value.store(value);
  if (mine.sleepers.load() != 0) {
    syscall(SYS_futex, &mine.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Shared::await(Stage stage, size_t rank, uint32_t value) {
  Flag& other = flag(stage, rank);
  // Counters may wrap: what matters is the distance.
  const auto behind = [&](uint32_t found) { return static_cast<int32_t>(found - value) < 0; };
  for (int spin = 0; spin < kLooks; ++spin) {
    if (!behind(other.value.load(std::memory_order_acquire))) {
      return;
    }
    __builtin_ia32_pause();
  }
  other.sleepers.fetch_add(1);
  uint32_t found = other.value.load();
  while (behind(found)) {
    const bool busy = state_.idle && state_.idle();
    syscall(SYS_futex, &other.value, FUTEX_WAIT, found, busy ? &kShortNap : &kNap, nullptr, 0);
    found = other.value.load();
    if (behind(found)) {
      state_.check();
    }
  }
  other.sleepers.fetch_sub(1);
}

void Shared::await_all(Stage stage, uint32_t value) {
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) {
      await(stage, rank, value);
    }
  }
}

void Shared::all_reduce(void* data, size_t count, Element element, Reduction reduction) {
  const size_t bytes = count * size_of(element);
  for (size_t start = 0; start < bytes; start += kBlock) {
    block(static_cast<char*>(data) + start, std::min(kBlock, bytes - start), element, reduction, true);
  }
}

void Shared::all_reduce(void* data, size_t count, Element element, Reduction reduction, Compression compression,
                        Wire* wire) {
  const size_t bytes = count * size_of(element);
  if (bytes == 0) {
    return;
  }
  const uint32_t first = block_;
  const size_t number = (bytes + kBlock - 1) / kBlock;
  const auto length = [&](size_t piece) { return std::min(kBlock, bytes - piece * kBlock); };
  const auto open = [&](size_t piece) {
    return block(static_cast<char*>(data) + piece * kBlock, length(piece), element, reduction, false);
  };
  const auto take = [&](size_t piece) {
    const uint32_t done = first + static_cast<uint32_t>(piece) + 1;
    if (wire != nullptr) {
      reach(kWired, done);
    } else {
      await(kWired, 0, done);
    }
    std::memcpy(static_cast<char*>(data) + piece * kBlock, result(done - 1), length(piece));
  };
  if (wire != nullptr) {
    const auto elements = [&](size_t piece) { return length(piece) / size_of(element); };
    wire->all_reduce({number, elements, open, take}, element, reduction, compression);
    return;
  }
  // In the order in which the first rank opens and closes.
  for (size_t piece = 0; piece < number; ++piece) {
    open(piece);
    if (piece >= 2) {
      take(piece - 2);
    }
  }
  for (size_t piece = number < 2 ? 0 : number - 2; piece < number; ++piece) {
    take(piece);
  }
}

// Stages of a piece: every rank copies what others shall reduce into its slot; every rank reduces its share over all
// slots into the block's result; with `take`, every rank copies the result out. The next piece is copied in before the
// wait for the others' shares. Two slots a rank are enough: whoever copies piece k + 1 in has seen all reduce k - 1.
// Three results are enough: whoever has begun block b + 3 has taken block b.
char* Shared::block(char* data, size_t bytes, Element element, Reduction reduction, bool take) {
  char* const sums = result(block_++);
  copy_in(data, std::min(kPiece, bytes), size_of(element));
  for (size_t start = 0; start < bytes; start += kPiece) {
    const size_t length = std::min(kPiece, bytes - start);
    await_all(kCopied, piece_);
    reduce(data + start, length, element, reduction, sums + start);
    const uint32_t reduced = piece_;
    reach(kReduced, reduced);
    if (start + kPiece < bytes) {
      copy_in(data + start + kPiece, std::min(kPiece, bytes - start - kPiece), size_of(element));
    }
    await_all(kReduced, reduced);
    if (take) {
      std::memcpy(data + start, sums + start, length);
    }
  }
  return sums;
}

void Shared::copy_in(const char* data, size_t bytes, size_t width) {
  char* const mine = slot(rank_, ++piece_);
  const size_t begin = share(bytes, width, rank_, ranks_);
  const size_t end = share(bytes, width, rank_ + 1, ranks_);
  // The own share is read where it is.
  std::memcpy(mine, data, begin);
  std::memcpy(mine + end, data + end, bytes - end);
  reach(kCopied, piece_);
}

void Shared::reduce(const char* data, size_t bytes, Element element, Reduction reduction, char* out) {
  const size_t width = size_of(element);
  const size_t begin = share(bytes, width, rank_, ranks_);
  const size_t end = share(bytes, width, rank_ + 1, ranks_);
  std::vector<const void*> rows(ranks_);
  for (size_t rank = 0; rank < ranks_; ++rank) {
    rows[rank] = (rank == rank_ ? data : slot(rank, piece_)) + begin;
  }
  reduce_rows(out + begin, rows.data(), ranks_, (end - begin) / width, element, reduction);
}

}  // namespace cft
