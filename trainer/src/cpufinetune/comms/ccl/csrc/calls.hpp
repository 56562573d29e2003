// Calls into oneCCL: one at a time, and with its exceptions turned into c10d's.
#pragma once

#include <oneapi/ccl.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvs.hpp"
#include "state.hpp"
#include "wire.hpp"

namespace cft {

// oneCCL takes operations from one thread at a time.
inline std::mutex& entrance() {
  static std::mutex mutex;
  return mutex;
}

// A creation may last for ever; operations of other groups must not wait behind it.
inline std::mutex& nursery() {
  static std::mutex mutex;
  return mutex;
}

template <typename Call>
auto guarded(const char* what, std::mutex& mutex, Call call) -> decltype(call()) {
  try {
    std::lock_guard<std::mutex> lock(mutex);
    return call();
  } catch (const ccl::exception& error) {
    raise(std::string("oneCCL: ") + what + ": " + error.what());
  }
}

template <typename Call>
Event start(const char* what, Call call) {
  return Event(new ccl::event(guarded(what, entrance(), call)));
}

// What a communicator is made of; it outlives the group if the group fails.
struct Wire::Lasting {
  std::shared_ptr<Kvs> kvs;
  std::unique_ptr<ccl::communicator> communicator;
  // Reused from call to call; see `all_reduce` for why two and three.
  std::vector<char> received[2];
  std::vector<char> packed[3];
};

}  // namespace cft
