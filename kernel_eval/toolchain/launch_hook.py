"""The code that is linked into a candidate's extension to report its launches to the recorder.

The linker redirects the extension's calls of CUDA's runtime to wrappers, which report an event and then make the call.
They run in the candidate's process and are as untrusted: code that bypasses them launches kernels that are not in the
trace, and so has no proof. Launches of libraries outside of the extension (cuBLAS and torch itself) are not reported,
because an answer that needs those does not come from the candidate's kernels.

An event is a kind, a name, numbers and addresses:
launch: the kernel; grid, block, shared bytes, whether cooperative; the address of each parameter
set, copy: destination, value or source, bytes · unknown: an action that cannot be replayed
"""

from __future__ import annotations

SET_LISTENER = "weir_set_listener"  # exported by the extension: sets the function that gets the events
WRAPPED = (
    *("cudaLaunchKernel", "__cudaLaunchKernel", "__cudaGetKernel", "__cudaRegisterFunction"),
    *("cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cudaMemset", "cudaMemsetAsync"),
    *("cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpyToSymbol", "cudaMemcpyToSymbolAsync"),
    *("cudaMalloc", "cudaMallocAsync", "cudaMallocManaged", "cudaGraphLaunch"),
)
LINKER_FLAGS = tuple(word for name in WRAPPED for word in ("-Xlinker", f"--wrap={name}"))

SOURCE = r"""
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <cuda_runtime.h>

typedef void (*weir_event)(const char* kind, const char* name, const uint64_t* numbers, void** parameters);
static weir_event listener = nullptr;

static std::unordered_map<const void*, std::string>& names() {
  static std::unordered_map<const void*, std::string> found;
  return found;
}

static void report(const char* kind, const char* name, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  const uint64_t numbers[] = {a, b, c};
  if (listener) listener(kind, name, numbers, nullptr);
}

static void report_launch(const void* function, dim3 g, dim3 b, void** parameters, size_t shared, bool cooperative) {
  const uint64_t numbers[] = {g.x, g.y, g.z, b.x, b.y, b.z, shared, cooperative};
  auto found = names().find(function);
  if (listener && found != names().end()) listener("launch", found->second.c_str(), numbers, parameters);
}

#define WRAP(name, parameters, arguments, event)                                  \
  cudaError_t __real_##name parameters;                                           \
  cudaError_t __wrap_##name parameters { event; return __real_##name arguments; }
#define NUMBER(x) reinterpret_cast<uint64_t>(x)

extern "C" {
__attribute__((visibility("default"))) void weir_set_listener(weir_event function) { listener = function; }

void __real___cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
void __wrap___cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int limit, void* t,
                                   void* b, void* bd, void* gd, int* w) {
  names()[host] = name;
  __real___cudaRegisterFunction(handle, host, device, name, limit, t, b, bd, gd, w);
}

WRAP(cudaLaunchKernel, (const void* f, dim3 g, dim3 b, void** p, size_t shared, cudaStream_t s),
     (f, g, b, p, shared, s), report_launch(f, g, b, p, shared, false))
WRAP(cudaLaunchCooperativeKernel, (const void* f, dim3 g, dim3 b, void** p, size_t shared, cudaStream_t s),
     (f, g, b, p, shared, s), report_launch(f, g, b, p, shared, true))
// since CUDA 13 <<<>>> requests a handle first; cudaLaunchKernel accepts the function's own address as one
cudaError_t __wrap___cudaGetKernel(void** handle, const void* function) {
  *handle = const_cast<void*>(function);
  return cudaSuccess;
}
cudaError_t __wrap___cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** p, size_t shared, cudaStream_t s) {
  return __wrap_cudaLaunchKernel(f, g, b, p, shared, s);
}
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** p) {
  if (c->numAttrs) report("unknown", "launches with attributes (cudaLaunchKernelEx)");
  report_launch(f, c->gridDim, c->blockDim, p, c->dynamicSmemBytes, false);
  return __real_cudaLaunchKernelExC(c, f, p);
}

WRAP(cudaMemset, (void* to, int value, size_t n), (to, value, n), report("set", "cudaMemset", NUMBER(to), value, n))
WRAP(cudaMemsetAsync, (void* to, int value, size_t n, cudaStream_t s), (to, value, n, s),
     report("set", "cudaMemsetAsync", NUMBER(to), value, n))
WRAP(cudaMemcpy, (void* to, const void* from, size_t n, cudaMemcpyKind k), (to, from, n, k),
     report("copy", "cudaMemcpy", NUMBER(to), NUMBER(from), n))
WRAP(cudaMemcpyAsync, (void* to, const void* from, size_t n, cudaMemcpyKind k, cudaStream_t s), (to, from, n, k, s),
     report("copy", "cudaMemcpyAsync", NUMBER(to), NUMBER(from), n))
WRAP(cudaMemcpyToSymbol, (const void* to, const void* from, size_t n, size_t at, cudaMemcpyKind k),
     (to, from, n, at, k), report("unknown", "fills a variable of the device (cudaMemcpyToSymbol)"))
WRAP(cudaMemcpyToSymbolAsync, (const void* to, const void* from, size_t n, size_t at, cudaMemcpyKind k,
     cudaStream_t s), (to, from, n, at, k, s), report("unknown", "fills a variable of the device (cudaMemcpyToSymbol)"))
WRAP(cudaMalloc, (void** to, size_t n), (to, n), report("unknown", "allocates with cudaMalloc: use torch::empty"))
WRAP(cudaMallocAsync, (void** to, size_t n, cudaStream_t s), (to, n, s),
     report("unknown", "allocates with cudaMallocAsync: use torch::empty"))
WRAP(cudaMallocManaged, (void** to, size_t n, unsigned flags), (to, n, flags),
     report("unknown", "allocates with cudaMallocManaged: use torch::empty"))
WRAP(cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t s), (graph, s),
     report("unknown", "launches a graph (cudaGraphLaunch)"))
}
"""
