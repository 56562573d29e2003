#include "outlive.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>

#include <oneapi/ccl.hpp>

#include "state.hpp"

namespace cft {
namespace {

std::terminate_handler others = nullptr;

void keep_thread() {
  if (const auto error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (const ccl::exception& found) {
      State::broken(found.what());
      end_without_oneccl();
      while (true) {
        pause();
      }
    } catch (...) {
      // None of ours.
    }
  }
  others();
}

}  // namespace

void outlive_worker() {
  static std::once_flag once;
  std::call_once(once, [] { others = std::set_terminate(keep_thread); });
}

void end_without_oneccl() {
  static std::once_flag once;
  std::call_once(once, [] {
    on_exit(
        [](int status, void*) {
          std::fflush(nullptr);
          _exit(status);
        },
        nullptr);
  });
}

}  // namespace cft
