// report_tool PAGE RUN…: what `trainer report` does, without LibTorch; for the Python tests.
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/experiment/report/report.h"

namespace {

int make_page(int argc, char** argv) {
  std::vector<brim::experiment::ReportRun> runs;
  for (int i = 2; i < argc; ++i) runs.push_back({brim::experiment::read_run(argv[i])});
  brim::write_file(argv[1], brim::experiment::make_report(runs, "today"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return argc < 3 ? 2 : brim::run_program(make_page, argc, argv); }
