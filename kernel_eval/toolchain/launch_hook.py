"""What is linked into an extension that a candidate wants built, so that its launches are told to the recorder.

The linker sends the extension's calls of CUDA's runtime through functions that tell first and then do what was asked.
They run in the candidate's process and are trusted no further: code that goes around them launches kernels that nobody
heard of, and so has no proof. Not told: what libraries launch that are not part of the extension (cuBLAS and torch
itself), because an answer that needs those does not come from the candidate's kernels.

An event is a kind, a name, numbers and addresses:
launch: the kernel; grid, block, shared bytes, whether cooperative; the address of each parameter
set, copy: destination, value or source, bytes · unknown: what cannot be repeated elsewhere
"""

from __future__ import annotations

TELL = "weir_tell"  # of the extension: takes the function that is told
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
static weir_event told = nullptr;

static std::unordered_map<const void*, std::string>& names() {
  static std::unordered_map<const void*, std::string> found;
  return found;
}

static void tell(const char* kind, const char* name, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  const uint64_t numbers[] = {a, b, c};
  if (told) told(kind, name, numbers, nullptr);
}

static void tell_launch(const void* function, dim3 g, dim3 b, void** parameters, size_t shared, bool cooperative) {
  const uint64_t numbers[] = {g.x, g.y, g.z, b.x, b.y, b.z, shared, cooperative};
  auto found = names().find(function);
  if (told && found != names().end()) told("launch", found->second.c_str(), numbers, parameters);
}

#define WRAP(name, parameters, arguments, event)                                  \
  cudaError_t __real_##name parameters;                                           \
  cudaError_t __wrap_##name parameters { event; return __real_##name arguments; }
#define NUMBER(x) reinterpret_cast<uint64_t>(x)

extern "C" {
__attribute__((visibility("default"))) void weir_tell(weir_event function) { told = function; }

void __real___cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
void __wrap___cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int limit, void* t,
                                   void* b, void* bd, void* gd, int* w) {
  names()[host] = name;
  __real___cudaRegisterFunction(handle, host, device, name, limit, t, b, bd, gd, w);
}

WRAP(cudaLaunchKernel, (const void* f, dim3 g, dim3 b, void** p, size_t shared, cudaStream_t s),
     (f, g, b, p, shared, s), tell_launch(f, g, b, p, shared, false))
WRAP(cudaLaunchCooperativeKernel, (const void* f, dim3 g, dim3 b, void** p, size_t shared, cudaStream_t s),
     (f, g, b, p, shared, s), tell_launch(f, g, b, p, shared, true))
// since CUDA 13 <<<>>> asks for a handle first: the function's own address is one that cudaLaunchKernel takes
cudaError_t __wrap___cudaGetKernel(void** handle, const void* function) {
  *handle = const_cast<void*>(function);
  return cudaSuccess;
}
cudaError_t __wrap___cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** p, size_t shared, cudaStream_t s) {
  return __wrap_cudaLaunchKernel(f, g, b, p, shared, s);
}
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** p) {
  if (c->numAttrs) tell("unknown", "launches with attributes (cudaLaunchKernelEx)");
  tell_launch(f, c->gridDim, c->blockDim, p, c->dynamicSmemBytes, false);
  return __real_cudaLaunchKernelExC(c, f, p);
}

WRAP(cudaMemset, (void* to, int value, size_t n), (to, value, n), tell("set", "cudaMemset", NUMBER(to), value, n))
WRAP(cudaMemsetAsync, (void* to, int value, size_t n, cudaStream_t s), (to, value, n, s),
     tell("set", "cudaMemsetAsync", NUMBER(to), value, n))
WRAP(cudaMemcpy, (void* to, const void* from, size_t n, cudaMemcpyKind k), (to, from, n, k),
     tell("copy", "cudaMemcpy", NUMBER(to), NUMBER(from), n))
WRAP(cudaMemcpyAsync, (void* to, const void* from, size_t n, cudaMemcpyKind k, cudaStream_t s), (to, from, n, k, s),
     tell("copy", "cudaMemcpyAsync", NUMBER(to), NUMBER(from), n))
WRAP(cudaMemcpyToSymbol, (const void* to, const void* from, size_t n, size_t at, cudaMemcpyKind k),
     (to, from, n, at, k), tell("unknown", "fills a variable of the device (cudaMemcpyToSymbol)"))
WRAP(cudaMemcpyToSymbolAsync, (const void* to, const void* from, size_t n, size_t at, cudaMemcpyKind k,
     cudaStream_t s), (to, from, n, at, k, s), tell("unknown", "fills a variable of the device (cudaMemcpyToSymbol)"))
WRAP(cudaMalloc, (void** to, size_t n), (to, n), tell("unknown", "takes memory with cudaMalloc: use torch::empty"))
WRAP(cudaMallocAsync, (void** to, size_t n, cudaStream_t s), (to, n, s),
     tell("unknown", "takes memory with cudaMallocAsync: use torch::empty"))
WRAP(cudaMallocManaged, (void** to, size_t n, unsigned flags), (to, n, flags),
     tell("unknown", "takes memory with cudaMallocManaged: use torch::empty"))
WRAP(cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t s), (graph, s),
     tell("unknown", "launches a graph (cudaGraphLaunch)"))
}
"""
