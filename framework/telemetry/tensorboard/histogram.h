// How often values of a tensor lie between bounds, as TensorBoard shows it.
#pragma once

#include <vector>

namespace brim::telemetry {

struct Histogram {
  double minimum = 0, maximum = 0;
  double count = 0;
  double sum = 0, sum_of_squares = 0;
  std::vector<double> limits;  // upper bounds of the buckets, rising
  std::vector<double> counts;  // as many
};

}  // namespace brim::telemetry
