// The thread of a group: runs operations in the order they were called in, one after the other, so that all ranks
// use oneCCL and the shared memory in the same order.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <thread>

#include "state.hpp"
#include "work.hpp"

namespace cft {

class Engine {
 public:
  explicit Engine(std::shared_ptr<State> state);
  // Ends what is queued, or fails it if the group has failed.
  ~Engine();

  // Throws if the group has failed.
  void submit(Operation operation);
  // Move transfers on; says whether there are any. Called on the thread itself while it waits.
  bool poll();

 private:
  struct Transfer {
    Operation operation;
    std::function<bool()> done;
  };
  void run();
  bool next(Operation& operation);
  void execute(Operation& operation);
  bool ended(Transfer& transfer);
  void fail(Operation& operation, const std::exception_ptr& error);
  State::Running describe(const Operation& operation) const;

  const std::shared_ptr<State> state_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Operation> queue_;
  bool stopping_ = false;
  // Of the thread alone.
  std::list<Transfer> transfers_;
  bool collective_ = false;
  std::thread thread_;
};

}  // namespace cft
