// The Python module.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.hpp"

namespace py = pybind11;

namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
using Duration = std::chrono::duration<double>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

cft::Milliseconds milliseconds(const Duration& duration) {
  return std::chrono::duration_cast<cft::Milliseconds>(duration);
}

cft::CclBackend& ours(const BackendPtr& backend) {
  auto* found = dynamic_cast<cft::CclBackend*>(backend.get());
  TORCH_CHECK_TYPE(found != nullptr, "not a group of the ccl backend, but of ", backend->getBackendName());
  return *found;
}

}  // namespace

PYBIND11_MODULE(cpufinetune_ccl, module) {
  module.doc() = "A c10d backend over oneCCL.";
  module.def(
      "create",
      [](const Store& store, int rank, int size, const Duration& timeout, const Duration& connect) -> BackendPtr {
        return c10::make_intrusive<cft::CclBackend>(store, rank, size, milliseconds(timeout), milliseconds(connect));
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("connect"),
      py::call_guard<py::gil_scoped_release>(),
      "Form a group within the time `connect`; `timeout` is for each operation. Collective. Raises DistBackendError\n"
      "that names missing ranks.");
  module.def(
      "all_reduce_compressed",
      [](const BackendPtr& backend, const at::Tensor& tensor) -> c10::intrusive_ptr<c10d::Work> {
        return ours(backend).allreduce_compressed(tensor);
      },
      py::arg("backend"), py::arg("tensor"), py::call_guard<py::gil_scoped_release>(),
      "Sum a float32 tensor in place; it crosses the network as bfloat16. Returns a Work.");
  module.def(
      "topology", [](const BackendPtr& backend) { return ours(backend).topology(); }, py::arg("backend"),
      "Say how the group's all-reduces go.");
  module.def("library_version", &cft::library_version, "The version of the oneCCL that is loaded.");
}
