// From where on a rule speaks, and how loudly: every threshold of the diagnosis.
#pragma once

namespace brim::doctor {

/// A value at `hint` or beyond is worth a line, at `warning` worth a change, at `severe` the
/// reason why the run is slow. Rising or falling.
struct Levels {
  double hint;
  double warning;
  double severe;
};

// Shares of a step's wall time.
inline constexpr Levels kDataWaitShare = {0.05, 0.15, 0.35};
inline constexpr Levels kCommunicationShare = {0.10, 0.20, 0.40};
inline constexpr Levels kComputeShareInFp32 = {0.30, 0.50, 0.70};
inline constexpr Levels kComputeShareOfLayout = {0.30, 0.50, 0.70};
inline constexpr Levels kSlowedShare = {0.02, 0.10, 0.30};  // of the time

// Utilisation of the device, in per cent.
inline constexpr Levels kSwing = {40, 60, 80};            // 95th less 5th percentile
inline constexpr Levels kIdleThoughFull = {60, 45, 30};   // mean, falling
inline constexpr Levels kLaunchBoundBusy = {70, 50, 30};  // mean, falling
inline constexpr double kLaunchBoundStepS = 0.050;        // steps longer than this are not
inline constexpr double kLaunchBoundWait = 0.05;          // share of data wait, at most

// Memory, as a share of the cap.
inline constexpr double kFull = 0.90;
inline constexpr Levels kEmpty = {0.50, 0.30, 0.15};  // falling
inline constexpr double kFillTarget = 0.85;           // what a larger batch aims at

// A CPU's batches: samples below which, in steps no longer than kLaunchBoundStepS, much of the time
// goes to what does not depend on their number.
inline constexpr Levels kSmallBatch = {16, 8, 2};  // falling

// Lines of metrics.
inline constexpr Levels kOtherShare = {0.05, 0.15, 0.35};  // of the time, in no phase of its own
inline constexpr long kUsualEverySteps = 10;
inline constexpr long kUsualHistogramSteps = 1000;

// Host syncs a step.
inline constexpr Levels kHostSyncs = {0.5, 2, 10};

// Ranks.
inline constexpr Levels kSlowestRank = {1.10, 1.25, 1.50};   // to the others' median
inline constexpr Levels kLargestShare = {1.05, 1.15, 1.30};  // to the mean

// The machine.
inline constexpr Levels kSwappedBytes = {64e6, 512e6, 2e9};
inline constexpr Levels kMajorFaultsPerS = {20, 100, 500};
inline constexpr Levels kLoadPerCore = {1.5, 2.5, 4};
inline constexpr Levels kIoStalled = {10, 25, 50};  // per cent
inline constexpr double kIoStalledWait = 0.02;      // share of data wait from which a disk matters

// Of a profile's rules: shares of a step's wall time.
inline constexpr Levels kMisalignedShare = {0.05, 0.15, 0.35};
inline constexpr Levels kTinyProductsShare = {0.05, 0.15, 0.35};
inline constexpr Levels kFp32Share = {0.05, 0.15, 0.35};
inline constexpr Levels kConversionsShare = {0.05, 0.10, 0.20};
inline constexpr Levels kLayoutCopiesShare = {0.05, 0.10, 0.20};
inline constexpr Levels kUnfusedShare = {0.05, 0.10, 0.20};
inline constexpr Levels kLostInGroupsShare = {0.05, 0.15, 0.35};  // beyond the roofline's
inline constexpr Levels kDenseEmbeddingShare = {0.05, 0.10, 0.20};
inline constexpr Levels kWideLossShare = {0.05, 0.10, 0.20};
inline constexpr Levels kRandomNumbersShare = {0.05, 0.10, 0.20};
inline constexpr Levels kTransformShare = {0.05, 0.15, 0.35};

/// Fewer steps than this, or less time, are a warm-up, of which nothing is said.
inline constexpr long kFewestSteps = 20;
inline constexpr double kShortestRunS = 30;

}  // namespace brim::doctor
