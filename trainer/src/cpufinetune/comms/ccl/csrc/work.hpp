// What a caller holds of an operation.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <string>
#include <vector>

#include "state.hpp"

namespace cft {

using Tensors = std::vector<at::Tensor>;

class CclWork : public c10d::Work {
 public:
  // `inputs` and `outputs` are kept alive; `outputs` are the result. `title` is the name that a profiler shows.
  CclWork(int rank, c10d::OpType type, const char* title, Tensors inputs, Tensors outputs, uint64_t sequence);

  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return sequence_; }

  // Callbacks of the future run on the calling thread, Python's too: it must hold no lock.
  void succeed();
  void fail(const std::exception_ptr& error);
  // After a failure oneCCL may still write: the memory must stay.
  void leak_tensors() const;

 private:
  const Tensors inputs_;
  const Tensors outputs_;
  const uint64_t sequence_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// An operation on its way through the group's thread.
struct Operation {
  c10::intrusive_ptr<CclWork> work;
  std::string what;
  uint64_t sequence;
  Milliseconds timeout;
  // A collective: blocks until it is done.
  std::function<void()> run;
  // Or a transfer with `peer`: starts it and returns the question whether it has ended.
  std::function<std::function<bool()>()> transfer;
  int peer = -1;
  Clock::time_point enqueued = Clock::now();
};

}  // namespace cft
