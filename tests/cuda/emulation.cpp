#include "tests/cuda/emulation.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace brim::cuda::emulation {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr unsigned kWarpSize = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr size_t kMaxSharedBytes = size_t{48} << 10;

enum class State { kReady, kAtBarrier, kInExchange, kDone };

/// Where a stack is left and continued, as __builtin_setjmp() keeps it. Unlike swapcontext() that
/// takes no system call, of which a block makes thousands, nor does it wipe the sanitizer's marks.
using Place = std::array<void*, 5>;

[[noreturn, gnu::noinline, gnu::no_sanitize_address]] void jump(Place& to) {
  __builtin_longjmp(to.data(), 1);
}

/// Returns when something switches to `from`.
[[gnu::noinline, gnu::no_sanitize_address]] void switch_stacks(Place& from, Place& to) {
  if (__builtin_setjmp(from.data()) == 0) jump(to);
}

struct Fiber {
  ucontext_t beginning = {};
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  Place place = {};
  bool begins = true;  // at `beginning`, not at `place`
  State state = State::kReady;
  uint3 index = {};
  uint64_t bits = 0;
  int distance = 0;
};

struct Machine {
  std::mt19937_64 random;
  std::vector<Fiber> fibers;
  unsigned threads = 0;  // of a block
  unsigned current = 0;
  Indices indices = {};
  Place scheduler = {};
  std::vector<double> shared;
  const std::function<void()>* body = nullptr;
};

Machine& machine() {
  static Machine one;
  return one;
}

void wait(State state) {
  Machine& m = machine();
  Fiber& own = m.fibers[m.current];
  own.state = state;
  switch_stacks(own.place, m.scheduler);
}

/// A fiber's life: a thread of one block after another.
void enter() {
  for (;;) {
    (*machine().body)();
    wait(State::kDone);
  }
}

[[gnu::noinline, gnu::no_sanitize_address]] void begin(Fiber& fiber, Place& from) {
  if (__builtin_setjmp(from.data()) != 0) return;
  ucontext_t unused = {};
  swapcontext(&unused, &fiber.beginning);
}

void start(Machine& m, unsigned thread) {
  Fiber& fiber = m.fibers[thread];
  const dim3& size = m.indices.block_size;
  fiber.index = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
  fiber.begins = fiber.state != State::kDone;  // new, or left in a block that threw
  fiber.state = State::kReady;
  if (!fiber.begins) return;
  getcontext(&fiber.beginning);
  fiber.beginning.uc_stack.ss_sp = fiber.stack.get();
  fiber.beginning.uc_stack.ss_size = kStackBytes;
  fiber.beginning.uc_link = nullptr;
  makecontext(&fiber.beginning, &enter, 0);
}

void resume(Machine& m, unsigned thread) {
  Fiber& fiber = m.fibers[thread];
  m.current = thread;
  m.indices.thread = fiber.index;
  if (std::exchange(fiber.begins, false)) {
    begin(fiber, m.scheduler);
  } else {
    switch_stacks(m.scheduler, fiber.place);
  }
}

/// Gives the lanes of a warp, all of which wait for it, each other's bits.
void finish_exchange(std::span<Fiber> warp) {
  std::array<uint64_t, kWarpSize> bits = {};
  const int distance = warp[0].distance;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (warp[lane].distance != distance) {
      throw std::logic_error("lanes of a warp exchange at different distances");
    }
    bits[lane] = warp[lane ^ static_cast<unsigned>(distance)].bits;
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane) warp[lane].bits = bits[lane];
}

/// Makes ready the fibers of a warp, or of a block, once all of them are in `state`.
bool release(std::span<Fiber> fibers, State state) {
  if (!std::ranges::all_of(fibers, [&](const Fiber& f) { return f.state == state; })) return false;
  if (state == State::kInExchange) finish_exchange(fibers);
  for (Fiber& fiber : fibers) fiber.state = State::kReady;
  return true;
}

/// Runs the warp as far as it gets without the others.
void run_warp(Machine& m, unsigned first) {
  std::array<unsigned, kWarpSize> lanes = {};
  std::iota(lanes.begin(), lanes.end(), first);
  const std::span<Fiber> warp(&m.fibers[first], kWarpSize);
  do {
    std::ranges::shuffle(lanes, m.random);
    for (const unsigned thread : lanes) {
      if (m.fibers[thread].state == State::kReady) resume(m, thread);
    }
  } while (release(warp, State::kInExchange));
}

/// One warp after another, so that a fast one is a whole barrier ahead of a slow one.
void run_block(Machine& m) {
  std::ranges::fill(m.shared, std::numeric_limits<double>::quiet_NaN());
  const std::span<Fiber> block(m.fibers.data(), m.threads);
  for (unsigned thread = 0; thread < m.threads; ++thread) start(m, thread);
  std::vector<unsigned> warps(m.threads / kWarpSize);
  do {
    for (unsigned i = 0; i < warps.size(); ++i) warps[i] = i * kWarpSize;
    std::ranges::shuffle(warps, m.random);
    for (const unsigned first : warps) run_warp(m, first);
  } while (release(block, State::kAtBarrier));
  if (!std::ranges::all_of(block, [](const Fiber& f) { return f.state == State::kDone; })) {
    throw std::logic_error("some threads wait where others don't come");
  }
}

}  // namespace

const Indices& indices() { return machine().indices; }

void wait_for_block() { wait(State::kAtBarrier); }

uint64_t exchange(uint64_t bits, int distance) {
  Machine& m = machine();
  Fiber& own = m.fibers[m.current];
  own.bits = bits;
  own.distance = distance;
  wait(State::kInExchange);
  return own.bits;
}

double* shared_memory() { return machine().shared.data(); }

void run(const Launch& at, const std::function<void()>& body) {
  Machine& m = machine();
  m.threads = at.block.x * at.block.y * at.block.z;
  if (m.threads == 0 || m.threads > kMaxThreads || m.threads % kWarpSize != 0 ||
      at.shared_bytes > kMaxSharedBytes || at.grid.x * at.grid.y * at.grid.z == 0 ||
      at.grid.y > 65535) {
    throw std::logic_error("no such launch: a block of " + std::to_string(m.threads) +
                           " threads, " + std::to_string(at.shared_bytes) +
                           " bytes of shared memory, a grid of " + std::to_string(at.grid.x) +
                           " x " + std::to_string(at.grid.y));
  }
  if (m.fibers.size() < m.threads) m.fibers.resize(m.threads);
  m.indices.block_size = at.block;
  m.indices.grid_size = at.grid;
  m.shared.assign(at.shared_bytes / sizeof(double), 0.0);
  m.body = &body;
  std::vector<uint64_t> blocks(static_cast<size_t>(at.grid.x) * at.grid.y * at.grid.z);
  std::iota(blocks.begin(), blocks.end(), uint64_t{0});
  std::ranges::shuffle(blocks, m.random);
  for (const uint64_t block : blocks) {
    m.indices.block = {static_cast<unsigned>(block % at.grid.x),
                       static_cast<unsigned>(block / at.grid.x % at.grid.y),
                       static_cast<unsigned>(block / at.grid.x / at.grid.y)};
    run_block(m);
  }
}

void (*launcher)(const Launch& at, const std::function<void()>& body) = run;

void reseed(uint64_t seed) { machine().random.seed(seed); }

}  // namespace brim::cuda::emulation
