// Operations that move data and do no arithmetic.
#include "backend.hpp"
#include "tensors.hpp"

namespace cft {
namespace {

void check_list(const Tensors& list, const at::Tensor& like, int size) {
  TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(size), "expected a list of ", size, " tensors, got ",
                    list.size());
  for (const auto& tensor : list) {
    check_alike(tensor, like);
  }
}

// What a rank gives itself: oneCCL copies it without a look at the room there is.
void check_equal(const at::Tensor& to, const at::Tensor& from) {
  TORCH_CHECK_VALUE(to.numel() == from.numel(), "this rank receives ", to.numel(), " elements from itself and sends ",
                    from.numel());
}

}  // namespace

WorkPtr CclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only(tensors);
  const int root = static_cast<int>(options.rootRank);
  check_root(root);
  return submit({c10d::OpType::BROADCAST, "ccl:broadcast", "broadcast"}, {tensor}, {tensor}, options.timeout,
                [=, this] { group_->wire().broadcast(tensor.mutable_data_ptr(), bytes_of(tensor), root); });
}

WorkPtr CclBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const at::Tensor input = only(inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1, "expected one list of outputs");
  const Tensors list = outputs[0];
  check_list(list, input, size_);
  check_equal(list[rank_], input);
  return submit({c10d::OpType::ALLGATHER, "ccl:all_gather", "all_gather"}, {input}, list, options.timeout,
                [=, this] {
                  const Scratch flat(total(bytes_of(list)));
                  group_->wire().all_gather(input.const_data_ptr(), flat.data(), bytes_of(list));
                  spread(flat, list);
                });
}

WorkPtr CclBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

WorkPtr CclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "as many outputs as inputs are needed");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i]);
    check_alike(outputs[i], inputs[i]);
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * size_, "the output must have ", size_,
                      " times the elements of the input, not ", outputs[i].numel(), " for ", inputs[i].numel());
  }
  return submit({c10d::OpType::_ALLGATHER_BASE, "ccl:all_gather", "all_gather"}, inputs, outputs, options.timeout,
                [inputs, outputs, this] {
                  for (size_t i = 0; i < inputs.size(); ++i) {
                    group_->wire().all_gather(inputs[i].const_data_ptr(), outputs[i].mutable_data_ptr(),
                                             std::vector<size_t>(size_, bytes_of(inputs[i])));
                  }
                });
}

WorkPtr CclBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor input = only(inputs);
  const int root = static_cast<int>(options.rootRank);
  check_root(root);
  Tensors list;
  if (rank_ == root) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "the root needs one list of outputs");
    list = outputs[0];
    check_list(list, input, size_);
    check_equal(list[root], input);
  }
  return submit({c10d::OpType::GATHER, "ccl:gather", "gather"}, {input}, list, options.timeout, [=, this] {
    std::vector<size_t> outgoing(size_), incoming = list.empty() ? std::vector<size_t>(size_) : bytes_of(list);
    outgoing[root] = bytes_of(input);
    const Scratch flat(total(incoming));
    group_->wire().all_to_all(input.const_data_ptr(), outgoing, flat.data(), incoming);
    spread(flat, list);
  });
}

WorkPtr CclBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor output = only(outputs);
  const int root = static_cast<int>(options.rootRank);
  check_root(root);
  Tensors list;
  if (rank_ == root) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "the root needs one list of inputs");
    list = inputs[0];
    check_list(list, output, size_);
    check_equal(list[root], output);
  }
  return submit({c10d::OpType::SCATTER, "ccl:scatter", "scatter"}, list, {output}, options.timeout, [=, this] {
    std::vector<size_t> outgoing = list.empty() ? std::vector<size_t>(size_) : bytes_of(list), incoming(size_);
    incoming[root] = bytes_of(output);
    const Scratch flat = joined(list);
    group_->wire().all_to_all(flat.data(), outgoing, output.mutable_data_ptr(), incoming);
  });
}

WorkPtr CclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "expected a list of ", size_, " tensors");
  check_list(inputs, inputs[0], size_);
  check_list(outputs, inputs[0], size_);
  check_equal(outputs[rank_], inputs[rank_]);
  return submit({c10d::OpType::ALLTOALL, "ccl:all_to_all", "all_to_all"}, inputs, outputs, options.timeout,
                [inputs, outputs, this] {
                  const Scratch outgoing = joined(inputs);
                  const Scratch incoming(total(bytes_of(outputs)));
                  group_->wire().all_to_all(outgoing.data(), bytes_of(inputs), incoming.data(), bytes_of(outputs));
                  spread(incoming, outputs);
                });
}

namespace {

// Bytes for each rank; without sizes, the first dimension is divided evenly.
std::vector<size_t> rows(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int size) {
  TORCH_CHECK_VALUE(tensor.dim() > 0, "a tensor without dimensions cannot be split");
  const int64_t length = tensor.size(0);
  if (sizes.empty()) {
    TORCH_CHECK_VALUE(length % size == 0, "the first dimension, ", length, ", is not divisible by ", size, " ranks");
    return std::vector<size_t>(size, bytes_of(tensor) / size);
  }
  TORCH_CHECK_VALUE(sizes.size() == static_cast<size_t>(size), "expected ", size, " split sizes, got ", sizes.size());
  int64_t sum = 0;
  std::vector<size_t> bytes;
  for (const int64_t rows : sizes) {
    TORCH_CHECK_VALUE(rows >= 0, "a split size is negative: ", rows);
    sum += rows;
    bytes.push_back(length ? rows * (bytes_of(tensor) / length) : 0);
  }
  TORCH_CHECK_VALUE(sum == length, "the split sizes add up to ", sum, ", the first dimension is ", length);
  return bytes;
}

}  // namespace

WorkPtr CclBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                                  std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) {
  check(input);
  check_alike(output, input);
  const auto outgoing = rows(input, input_sizes, size_), incoming = rows(output, output_sizes, size_);
  TORCH_CHECK_VALUE(outgoing[rank_] == incoming[rank_], "this rank receives ", incoming[rank_],
                    " bytes from itself and sends ", outgoing[rank_]);
  return submit({c10d::OpType::ALLTOALL_BASE, "ccl:all_to_all", "all_to_all"}, {input}, {output}, options.timeout,
                [input, output, outgoing, incoming, this] {
                  group_->wire().all_to_all(input.const_data_ptr(), outgoing, output.mutable_data_ptr(), incoming);
                });
}

WorkPtr CclBackend::barrier(const c10d::BarrierOptions& options) {
  return submit({c10d::OpType::BARRIER, "ccl:barrier", "barrier"}, {}, {}, options.timeout,
                [this] { group_->wire().barrier(); });
}

WorkPtr CclBackend::transfer(const Kind& kind, Tensors& tensors, int peer, int tag) {
  const at::Tensor tensor = only(tensors);
  check_root(peer);
  TORCH_CHECK_VALUE(peer != rank_, "a rank cannot ", kind.name, " itself");
  TORCH_CHECK(tag == 0, "the ccl backend does not support tags: oneCCL matches transfers by their order");
  const bool sending = kind.type == c10d::OpType::SEND;
  std::lock_guard<std::mutex> lock(order_);
  TORCH_CHECK(engine_ != nullptr, "the process group has been shut down");
  Operation operation;
  operation.what = std::string(kind.name) + " rank " + std::to_string(peer) + " (" + describe({tensor}) + ")";
  operation.sequence = sequence_ + 1;
  operation.work = c10::make_intrusive<CclWork>(rank_, kind.type, kind.title, sending ? Tensors{tensor} : Tensors{},
                                                sending ? Tensors{} : Tensors{tensor}, operation.sequence);
  operation.timeout = timeout_;
  operation.peer = peer;
  operation.transfer = [=, this]() -> std::function<bool()> {
    if (bytes_of(tensor) == 0) {
      return [] { return true; };
    }
    return sending ? group_->transfers().send(tensor.const_data_ptr(), bytes_of(tensor), peer)
                   : group_->transfers().receive(tensor.mutable_data_ptr(), bytes_of(tensor), peer);
  };
  auto work = operation.work;
  engine_->submit(std::move(operation));
  return work;
}

WorkPtr CclBackend::send(Tensors& tensors, int destination, int tag) {
  return transfer({c10d::OpType::SEND, "ccl:send", "send to"}, tensors, destination, tag);
}

WorkPtr CclBackend::recv(Tensors& tensors, int source, int tag) {
  return transfer({c10d::OpType::RECV, "ccl:recv", "recv from"}, tensors, source, tag);
}

}  // namespace cft
