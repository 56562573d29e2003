#include "work.hpp"

namespace cft {

CclWork::CclWork(int rank, c10d::OpType type, const char* title, Tensors inputs, Tensors outputs, uint64_t sequence)
    : Work(rank, type, title, inputs),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      sequence_(sequence),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void CclWork::succeed() {
  finish();
  future_->markCompleted(c10::IValue(outputs_));
}

void CclWork::fail(const std::exception_ptr& error) {
  finish(error);
  future_->setError(error);
}

void CclWork::leak_tensors() const {
  new Tensors(inputs_);
  new Tensors(outputs_);
}

}  // namespace cft
