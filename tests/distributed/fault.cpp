// LD_PRELOADed into the trainer by the fault tests: one chosen rank breaks at a chosen call of a
// LibTorch function that the trainer calls where the fault shall happen.
//
//   BRIM_TEST_FAULT="rank=1,where=backward,call=3,kind=kill[,restart=0][,ms=20]"
//
// where: start (before main), forward, backward, communication (a collective or message begins),
//        optimizer (SGD's), evaluation, checkpoint
// kind:  kill, stop, segv, exit, throw; stop_launcher (SIGTERM to the parent), kill_launcher;
//        oom: LibTorch's exception for exhausted memory; no_engine: cuDNN's; shortage: the kernel
//        refuses memory until Brim's allocator has given up once; slow: so many ms more at this
//        call and each later one; jitter: as slow, but for a time at random up to so many
// rank: none: on all of them
// restart: only while the launcher has started the ranks again that often
//
//   BRIM_TEST_FAULT="where=pages,file=PATH"
//
// Which pages a rank reads of the file that it maps: a byte each, 1 where it does, in
// PATH.pages-RANK, whatever lies in the page cache.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_sgd_ops.h>
#include <ATen/ops/flatten_ops.h>
#include <ATen/ops/isfinite_ops.h>
#include <ATen/ops/topk_ops.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Fault {
  std::string where, kind, file;
  long call = 1;
  long ms = 20;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

/// This process's fault; its `where` is empty where it has none.
Fault read_fault() {
  Fault fault;
  std::istringstream words(variable("BRIM_TEST_FAULT"));
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "where") fault.where = value;
    if (name == "kind") fault.kind = value;
    if (name == "file") fault.file = value;
    if (name == "call") fault.call = std::atol(value.c_str());
    if (name == "ms") fault.ms = std::atol(value.c_str());
    if (name == "rank" && value != variable("RANK")) return {};
    if (name == "restart" && value != variable("TORCHELASTIC_RESTART_COUNT")) return {};
  }
  return fault;
}

std::atomic<int> refusals_left = 0;
constexpr size_t kTensorBytes = size_t{1} << 20;  // what only tensors ask for at once

void raise_fatal(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void commit(const Fault& fault) {
  const std::string& kind = fault.kind;
  if (kind == "kill") raise_fatal(SIGKILL);
  if (kind == "stop") raise_fatal(SIGSTOP);
  if (kind == "segv") raise_fatal(SIGSEGV);
  if (kind == "exit") ::_exit(1);
  if (kind == "stop_launcher") {
    ::kill(::getppid(), SIGTERM);
    ::usleep(1'000'000);  // its word reaches all ranks while they wait for this one
  }
  if (kind == "kill_launcher") ::kill(::getppid(), SIGKILL);
  if (kind == "slow") ::usleep(1000 * fault.ms);
  if (kind == "jitter") {
    static std::minstd_rand numbers(std::random_device{}());
    ::usleep(std::uniform_int_distribution<unsigned>(0, 1000 * fault.ms)(numbers));
  }
  if (kind == "shortage")
    refusals_left = 3;  // the allocator tries again with an empty cache, and without free pages
  if (kind == "oom") C10_THROW_ERROR(OutOfMemoryError, "the injected shortage");
  if (kind == "no_engine")
    TORCH_CHECK(false, "FIND was unable to find an engine to execute this computation");
  if (kind == "libtorch") TORCH_CHECK(false, "the injected mistake");
  if (kind == "throw") throw std::runtime_error("the injected fault");
}

/// Called by one thread: the one that drives the step.
void reach(const char* where) {
  static const Fault fault = read_fault();
  static long calls = 0;
  if (fault.where != where) return;
  const bool lasts = fault.kind == "slow" || fault.kind == "jitter";
  if (++calls == fault.call || (lasts && calls > fault.call)) commit(fault);
}

/// LibTorch's own function of that mangled name.
template <class Function>
Function* own(const char* name) {
  void* address = ::dlsym(RTLD_NEXT, name);
  if (address == nullptr) {
    std::fprintf(stderr, "fault.cpp: LibTorch has no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(address);
}

/// Of any other fault nothing is read yet: a process that is forked later may have one of its own.
__attribute__((constructor)) void start() {
  if (read_fault().where == "start") reach("start");
}

/// The file's mapping, of which no page may be read before it is noted.
struct WatchedPages {
  std::byte* start = nullptr;
  size_t bytes = 0;
  char* is_read = nullptr;  // by page
} watched;

void note_page(int, siginfo_t* info, void*) {
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(info->si_addr) - watched.start);
  if (offset >= watched.bytes) return raise_fatal(SIGSEGV);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  watched.is_read[offset / page] = 1;
  ::mprotect(watched.start + offset / page * page, page, PROT_READ);
}

void watch_pages(const std::string& path, void* start, size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t pages = (bytes + page - 1) / page;
  const int notes =
      ::open((path + ".pages-" + variable("RANK")).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (notes < 0 || ::ftruncate(notes, static_cast<off_t>(pages)) != 0) std::abort();
  watched = {.start = static_cast<std::byte*>(start), .bytes = pages * page};
  watched.is_read =
      static_cast<char*>(::mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, notes, 0));
  ::close(notes);
  struct sigaction action {};
  action.sa_sigaction = note_page;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::mprotect(start, watched.bytes, PROT_NONE);
}

bool is_same_file(int file, const std::string& path) {
  struct stat one {};
  struct stat other {};
  return ::fstat(file, &one) == 0 && ::stat(path.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

extern "C" void* mmap(void* where, size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
  static auto* const next = own<decltype(mmap)>("mmap");
  if (file == -1 && bytes >= kTensorBytes && refusals_left > 0) {
    --refusals_left;
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void* start = next(where, bytes, protection, flags, file, offset);
  if (file == -1 || start == MAP_FAILED) return start;
  const Fault fault = read_fault();  // each time: a process that is forked may have its own
  if (fault.where == "pages" && is_same_file(file, fault.file)) {
    watch_pages(fault.file, start, bytes);
  }
  return start;
}

// In at::_ops, `std` is an operator.
namespace at::_ops {

/// What the tests' models flatten once a pass: the images, or what convolutions made of them.
at::Tensor flatten_using_ints::call(const at::Tensor& self, int64_t start_dim, int64_t end_dim) {
  static auto* const next = own<schema>("_ZN2at4_ops18flatten_using_ints4callERKNS_6TensorEll");
  if (c10::GradMode::is_enabled()) reach("forward");
  return next(self, start_dim, end_dim);
}

::std::tuple<at::Tensor, at::Tensor> topk::call(const at::Tensor& self, c10::SymInt k, int64_t dim,
                                                bool largest, bool sorted) {
  static auto* const next = own<schema>("_ZN2at4_ops4topk4callERKNS_6TensorEN3c106SymIntElbb");
  reach("evaluation");
  return next(self, ::std::move(k), dim, largest, sorted);
}

void _fused_sgd_::call(TensorList self, TensorList gradients, TensorList momentum,
                       double weight_decay, double momentum_share, double learning_rate,
                       double dampening, bool nesterov, bool maximize, bool is_first_step,
                       const ::std::optional<Tensor>& grad_scale,
                       const ::std::optional<Tensor>& found_inf) {
  static auto* const next = own<schema>(
      "_ZN2at4_ops11_fused_sgd_4callEN3c108ArrayRefINS_6TensorEEES5_S5_ddddbbbRKSt8optionalIS4_"
      "ES9_");
  reach("optimizer");
  next(self, gradients, momentum, weight_decay, momentum_share, learning_rate, dampening, nesterov,
       maximize, is_first_step, grad_scale, found_inf);
}

at::Tensor isfinite::call(const at::Tensor& self) {
  static auto* const next = own<schema>("_ZN2at4_ops8isfinite4callERKNS_6TensorE");
  reach("checkpoint");
  return next(self);
}

}  // namespace at::_ops

namespace at {

/// A member function is a plain one with `this` first.
void Tensor::_backward(TensorList inputs, const std::optional<Tensor>& gradient,
                       std::optional<bool> keep_graph, bool create_graph) const {
  using Function =
      void(const Tensor*, TensorList, const std::optional<Tensor>&, std::optional<bool>, bool);
  static auto* const next =
      own<Function>("_ZNK2at6Tensor9_backwardEN3c108ArrayRefIS0_EERKSt8optionalIS0_ES4_IbEb");
  reach("backward");
  next(this, inputs, gradient, keep_graph, create_graph);
}

}  // namespace at

// Gloo's collectives and messages, as the trainer begins them: of c10d's classes only the names
// matter here.
namespace c10d {

struct AllgatherOptions;
struct AllreduceOptions;
struct AllToAllOptions;
struct BroadcastOptions;
struct ReduceScatterOptions;

/// Returned as an intrusive pointer is.
struct WorkPointer {
  WorkPointer(const WorkPointer&) = delete;
  WorkPointer& operator=(const WorkPointer&) = delete;
  ~WorkPointer() {}
  void* work;
};

class ProcessGroupGloo {
 public:
  WorkPointer allreduce(std::vector<at::Tensor>& tensors, const AllreduceOptions& options);
  WorkPointer broadcast(std::vector<at::Tensor>& tensors, const BroadcastOptions& options);
  WorkPointer _allgather_base(at::Tensor& all, at::Tensor& own_part,
                              const AllgatherOptions& options);
  WorkPointer _reduce_scatter_base(at::Tensor& sum, at::Tensor& all,
                                   const ReduceScatterOptions& options);
  WorkPointer alltoall_base(at::Tensor& to, at::Tensor& from, std::vector<int64_t>& to_sizes,
                            std::vector<int64_t>& from_sizes, const AllToAllOptions& options);
  WorkPointer send(std::vector<at::Tensor>& tensors, int to, int tag);
  WorkPointer recv(std::vector<at::Tensor>& tensors, int from, int tag);
};

/// A member function that returns so is a plain one with `this` first.
template <class... Arguments>
using Start = WorkPointer(ProcessGroupGloo*, Arguments...);

WorkPointer ProcessGroupGloo::allreduce(std::vector<at::Tensor>& tensors,
                                        const AllreduceOptions& options) {
  static auto* const next = own<Start<std::vector<at::Tensor>&, const AllreduceOptions&>>(
      "_ZN4c10d16ProcessGroupGloo9allreduceERSt6vectorIN2at6TensorESaIS3_EERKNS_"
      "16AllreduceOptionsE");
  reach("communication");
  return next(this, tensors, options);
}

WorkPointer ProcessGroupGloo::broadcast(std::vector<at::Tensor>& tensors,
                                        const BroadcastOptions& options) {
  static auto* const next = own<Start<std::vector<at::Tensor>&, const BroadcastOptions&>>(
      "_ZN4c10d16ProcessGroupGloo9broadcastERSt6vectorIN2at6TensorESaIS3_EERKNS_"
      "16BroadcastOptionsE");
  reach("communication");
  return next(this, tensors, options);
}

WorkPointer ProcessGroupGloo::_allgather_base(at::Tensor& all, at::Tensor& own_part,
                                              const AllgatherOptions& options) {
  static auto* const next = own<Start<at::Tensor&, at::Tensor&, const AllgatherOptions&>>(
      "_ZN4c10d16ProcessGroupGloo15_allgather_baseERN2at6TensorES3_RKNS_16AllgatherOptionsE");
  reach("communication");
  return next(this, all, own_part, options);
}

WorkPointer ProcessGroupGloo::_reduce_scatter_base(at::Tensor& sum, at::Tensor& all,
                                                   const ReduceScatterOptions& options) {
  static auto* const next = own<Start<at::Tensor&, at::Tensor&, const ReduceScatterOptions&>>(
      "_ZN4c10d16ProcessGroupGloo20_reduce_scatter_baseERN2at6TensorES3_RKNS_"
      "20ReduceScatterOptionsE");
  reach("communication");
  return next(this, sum, all, options);
}

WorkPointer ProcessGroupGloo::alltoall_base(at::Tensor& to, at::Tensor& from,
                                            std::vector<int64_t>& to_sizes,
                                            std::vector<int64_t>& from_sizes,
                                            const AllToAllOptions& options) {
  static auto* const next = own<Start<at::Tensor&, at::Tensor&, std::vector<int64_t>&,
                                      std::vector<int64_t>&, const AllToAllOptions&>>(
      "_ZN4c10d16ProcessGroupGloo13alltoall_baseERN2at6TensorES3_RSt6vectorIlSaIlEES7_RKNS_"
      "15AllToAllOptionsE");
  reach("communication");
  return next(this, to, from, to_sizes, from_sizes, options);
}

WorkPointer ProcessGroupGloo::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  static auto* const next = own<Start<std::vector<at::Tensor>&, int, int>>(
      "_ZN4c10d16ProcessGroupGloo4sendERSt6vectorIN2at6TensorESaIS3_EEii");
  reach("communication");
  return next(this, tensors, to, tag);
}

WorkPointer ProcessGroupGloo::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  static auto* const next = own<Start<std::vector<at::Tensor>&, int, int>>(
      "_ZN4c10d16ProcessGroupGloo4recvERSt6vectorIN2at6TensorESaIS3_EEii");
  reach("communication");
  return next(this, tensors, from, tag);
}

}  // namespace c10d
