#include <ATen/ATen.h>
#include <cstdio>
#include "framework/base/error.h"
#include "framework/distributed/group.h"
using namespace brim;
int body(int argc, char**) {
  auto ranks = distributed::read_ranks();
  auto g = distributed::Group::connect(ranks, c10::kCPU, std::chrono::seconds(10));
  at::Tensor t = at::ones({3}) * (g->rank() + 1);
  g->all_reduce(t, distributed::Reduce::kSum, "a sum");
  std::printf("%ld of %ld: %g %s\n", g->rank(), g->world(), t[0].item<float>(), g->broadcast("from " + std::to_string(g->rank()), "text").c_str());
  for (auto& s : g->all_gather("r" + std::to_string(g->rank()), "texts")) std::printf(" %s", s.c_str());
  std::puts("");
  if (argc > 1) { for (int i = 0; i < 1000; ++i) { g->step(i); g->all_reduce(at::ones({100}), distributed::Reduce::kSum, "the sum of things"); usleep(50000);} }
  g->finish();
  return 0;
}
int main(int argc, char** argv) { return brim::run_program(body, argc, argv); }
