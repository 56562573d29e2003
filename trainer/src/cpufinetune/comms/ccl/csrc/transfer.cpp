// Transfers between two ranks.
#include "calls.hpp"

namespace cft {

// oneCCL may swap transfers of one direction that are on their way at once: each begins when the one before has ended.
std::function<bool()> Wire::transfer(int peer, bool sending, std::function<Event()> begin) {
  auto& turns = turns_[{peer, sending}];
  turns = turns ? turns : std::make_shared<Turns>();
  const uint64_t mine = turns->taken++;
  // Left behind, not destroyed, if the group fails while it is on its way.
  ccl::event* running = nullptr;
  return [turns = turns, mine, begin = std::move(begin), running]() mutable {
    if (turns->ended == mine && running == nullptr) {
      running = begin().release();
    }
    if (running == nullptr || !running->test()) {
      return false;
    }
    delete running;
    ++turns->ended;
    return true;
  };
}

std::function<bool()> Wire::send(const void* data, size_t bytes, int peer) {
  return transfer(peer, true, [=, this] {
    return start("send", [&] {
      // oneCCL's signature forgets that it only reads.
      return ccl::send(const_cast<void*>(data), bytes, ccl::datatype::uint8, peer, *lasting_->communicator);
    });
  });
}

std::function<bool()> Wire::receive(void* data, size_t bytes, int peer) {
  return transfer(peer, false, [=, this] {
    return start("recv",
                 [&] { return ccl::recv(data, bytes, ccl::datatype::uint8, peer, *lasting_->communicator); });
  });
}

}  // namespace cft
