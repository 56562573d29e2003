// The c10d backend: checks arguments and hands the operation to the group's thread.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "engine.hpp"
#include "group.hpp"
#include "work.hpp"

namespace cft {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class CclBackend : public c10d::Backend {
 public:
  // Collective; see Group.
  CclBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout,
             Milliseconds connect);
  ~CclBackend() override;

  const std::string getBackendName() const override { return "ccl"; }
  // These two override in some versions of torch only, so the word is left out.
  c10::intrusive_ptr<Options> getBackendOptions() {
    return c10::make_intrusive<Options>("ccl", timeout_);
  }
  void setTimeout(Milliseconds timeout) { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

  // Sum float32 in place, crossing the wire as bfloat16; within a node in float32.
  WorkPtr allreduce_compressed(at::Tensor tensor);
  std::string topology() const { return group_ ? group_->topology() : "shut down"; }

  void abort() override;
  void shutdown() override;

 private:
  // What an operation is to c10d and to people.
  struct Kind {
    c10d::OpType type;
    const char* title;
    const char* name;
  };
  WorkPtr submit(const Kind& kind, Tensors inputs, Tensors outputs, Milliseconds timeout, std::function<void()> run);
  WorkPtr transfer(const Kind& kind, Tensors& tensors, int peer, int tag);
  void check_root(int64_t root) const;

  Milliseconds timeout_;
  uint64_t sequence_ = 0;
  std::mutex order_;
  std::mutex ending_;
  // Null after the shutdown.
  std::unique_ptr<Group> group_;
  const std::shared_ptr<State> state_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace cft
