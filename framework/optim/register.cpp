#include "framework/optim/adam.h"
#include "framework/optim/lamb.h"
#include "framework/optim/lars.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/optim/schedules.h"
#include "framework/optim/sgd.h"

namespace brim::optim {

void register_optimizers() {
  auto& optimizers = recipe::registry<OptimizerConfig>();
  optimizers.add<SgdConfig>("sgd", "stochastic gradient descent with momentum");
  optimizers.add<AdamConfig>("adam", "Adam; weight decay is added to the gradient");
  optimizers.add<AdamWConfig>("adamw", "Adam with decoupled weight decay");
  optimizers.add<LambConfig>("lamb", "Adam scaled layer by layer if weight_decay is not 0");
  optimizers.add<LarsConfig>("lars", "momentum SGD scaled layer by layer if weight_decay is not 0");
}

void register_schedules() {
  auto& schedules = recipe::registry<ScheduleConfig>();
  schedules.add<ConstantConfig>("constant", "the same rate throughout");
  schedules.add<CosineConfig>("cosine", "down along half a cosine");
  schedules.add<LinearConfig>("linear", "down along a straight line");
  schedules.add<StepConfig>("step", "down by a factor at chosen moments");
  schedules.add<OneCycleConfig>("one_cycle",
                                "up to the learning rate, then down to almost nothing");
  schedules.add<PlateauConfig>("plateau", "down by a factor when evaluation stops improving");
}

}  // namespace brim::optim
