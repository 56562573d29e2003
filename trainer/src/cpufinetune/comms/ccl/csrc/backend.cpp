#include <Python.h>

#include "backend.hpp"

#include "tensors.hpp"

namespace cft {
namespace {

// Python's callbacks run on the thread that is waited for at the end.
struct WithoutGil {
  PyThreadState* const state = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  ~WithoutGil() {
    if (state != nullptr) {
      PyEval_RestoreThread(state);
    }
  }
};

}  // namespace

CclBackend::CclBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout,
                       Milliseconds connect)
    : Backend(rank, size),
      timeout_(timeout),
      group_(std::make_unique<Group>(store, rank, size, connect)),
      state_(group_->state()),
      engine_(std::make_unique<Engine>(state_)) {
  init();
  state_->idle = [engine = engine_.get()] { return engine->poll(); };
}

CclBackend::~CclBackend() {
  shutdown();
}

// Idempotent.
void CclBackend::shutdown() {
  const WithoutGil release;
  std::lock_guard<std::mutex> once(ending_);
  std::unique_ptr<Engine> engine;
  {
    std::lock_guard<std::mutex> lock(order_);
    engine = std::move(engine_);
  }
  // Ends what is queued, which needs the group.
  engine.reset();
  group_.reset();
}

void CclBackend::abort() {
  state_->fail("the group was aborted by this rank");
  shutdown();
}

c10d::ErrorType CclBackend::getError() {
  return state_->failed() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

WorkPtr CclBackend::submit(const Kind& kind, Tensors inputs, Tensors outputs, Milliseconds timeout,
                           std::function<void()> run) {
  // Numbered and queued in one go: the number is the place in the queue.
  std::lock_guard<std::mutex> lock(order_);
  TORCH_CHECK(engine_ != nullptr, "the process group has been shut down");
  const uint64_t sequence = ++sequence_;
  Operation operation;
  operation.what = std::string(kind.name) + " number " + std::to_string(sequence) + " (" +
                   describe(inputs.empty() ? outputs : inputs) + ")";
  operation.work = c10::make_intrusive<CclWork>(rank_, kind.type, kind.title, std::move(inputs), std::move(outputs),
                                                sequence);
  operation.sequence = sequence;
  operation.timeout = timeout > Milliseconds(0) ? timeout : timeout_;
  operation.run = std::move(run);
  auto work = operation.work;
  engine_->submit(std::move(operation));
  return work;
}

WorkPtr CclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only(tensors);
  const Element element = element_of(tensor);
  const Reduction reduction = reduction_of(options.reduceOp, tensor);
  const bool average = options.reduceOp == c10d::ReduceOp::AVG;
  return submit({c10d::OpType::ALLREDUCE, "ccl:all_reduce", "all_reduce"}, {tensor}, {tensor}, options.timeout,
                [=, this] {
                  const size_t count = tensor.numel();
                  group_->all_reduce(tensor.mutable_data_ptr(), count, element, reduction, Compression::kNone);
                  if (average) {
                    divide(tensor.mutable_data_ptr(), count, element, size_);
                  }
                });
}

WorkPtr CclBackend::allreduce_compressed(at::Tensor tensor) {
  check(tensor);
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kFloat, "only float32 is compressed, not ",
                   toString(tensor.scalar_type()));
  return submit({c10d::OpType::ALLREDUCE, "ccl:all_reduce_bf16", "all_reduce in bfloat16"}, {tensor}, {tensor},
                timeout_, [=, this] {
                  group_->all_reduce(tensor.mutable_data_ptr(), tensor.numel(), Element::kFloat32, Reduction::kSum,
                                    Compression::kBFloat16);
                });
}

WorkPtr CclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  for (const auto& tensor : tensors) {
    check(tensor);
    element_of(tensor);
    reduction_of(options.reduceOp, tensor);
  }
  return submit({c10d::OpType::ALLREDUCE_COALESCED, "ccl:all_reduce_coalesced", "all_reduce_coalesced"}, tensors,
                tensors, options.timeout, [tensors, options, this] {
                  for (const auto& tensor : tensors) {
                    const Element element = element_of(tensor);
                    group_->all_reduce(tensor.mutable_data_ptr(), tensor.numel(), element,
                                      reduction_of(options.reduceOp, tensor), Compression::kNone);
                    if (options.reduceOp == c10d::ReduceOp::AVG) {
                      divide(tensor.mutable_data_ptr(), tensor.numel(), element, size_);
                    }
                  }
                });
}

void CclBackend::check_root(int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "there is no rank ", root, " in a group of ", size_);
}

// As expensive as an all-reduce: rare, and the same sums in the same order.
WorkPtr CclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only(tensors);
  check_root(options.rootRank);
  const Element element = element_of(tensor);
  const Reduction reduction = reduction_of(options.reduceOp, tensor);
  const bool average = options.reduceOp == c10d::ReduceOp::AVG;
  const bool root = options.rootRank == rank_;
  return submit({c10d::OpType::REDUCE, "ccl:reduce", "reduce"}, {tensor}, {tensor}, options.timeout, [=, this] {
    // The others' tensors stay as they are.
    const Scratch copy = joined(root ? Tensors{} : Tensors{tensor});
    void* const data = root ? tensor.mutable_data_ptr() : copy.data();
    group_->all_reduce(data, tensor.numel(), element, reduction, Compression::kNone);
    if (average && root) {
      divide(data, tensor.numel(), element, size_);
    }
  });
}

WorkPtr CclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

WorkPtr CclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "as many outputs as inputs are needed");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i]);
    check_alike(outputs[i], inputs[i]);
    element_of(inputs[i]);
    reduction_of(options.reduceOp, inputs[i]);
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * size_, "the input must have ", size_,
                      " times the elements of the output, not ", inputs[i].numel(), " for ", outputs[i].numel());
  }
  return submit({c10d::OpType::_REDUCE_SCATTER_BASE, "ccl:reduce_scatter", "reduce_scatter"}, inputs, outputs,
                options.timeout, [inputs, outputs, options, this] {
                  for (size_t i = 0; i < inputs.size(); ++i) {
                    const Element element = element_of(inputs[i]);
                    void* const out = outputs[i].mutable_data_ptr();
                    group_->wire().reduce_scatter(inputs[i].const_data_ptr(), out, outputs[i].numel(), element,
                                                 reduction_of(options.reduceOp, inputs[i]));
                    if (options.reduceOp == c10d::ReduceOp::AVG) {
                      divide(out, outputs[i].numel(), element, size_);
                    }
                  }
                });
}

WorkPtr CclBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only(outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_), "expected a list of ", size_,
                    " tensors");
  const Tensors list = inputs[0];
  for (const auto& tensor : list) {
    check_alike(tensor, output);
    TORCH_CHECK_VALUE(tensor.numel() == output.numel(), "all tensors must have as many elements as the output");
  }
  const Element element = element_of(output);
  const Reduction reduction = reduction_of(options.reduceOp, output);
  const bool average = options.reduceOp == c10d::ReduceOp::AVG;
  return submit({c10d::OpType::REDUCE_SCATTER, "ccl:reduce_scatter", "reduce_scatter"}, list, {output},
                options.timeout, [=, this] {
                  const Scratch flat = joined(list);
                  void* const out = output.mutable_data_ptr();
                  group_->wire().reduce_scatter(flat.data(), out, output.numel(), element, reduction);
                  if (average) {
                    divide(out, output.numel(), element, size_);
                  }
                });
}

}  // namespace cft
