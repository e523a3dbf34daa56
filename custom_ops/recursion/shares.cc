#include "custom_ops/recursion/shares.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "tensorflow/core/common_runtime/renamed_device.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/platform/threadpool_interface.h"

namespace tf_ext {
namespace recursion {
namespace {

// Rough, on purpose: whether a share is worth a thread is a matter of orders of magnitude.
constexpr double kNanosecondsPerProduct = 1.0 / 40;  // a multiplication and an addition of a matrix product
constexpr double kNanosecondsPerByte = 0.2;          // elementwise work
constexpr double kWorthSharing = 8'000;              // nanoseconds of a share that pay for handing it to a thread

bool MayDivide(const std::string& op) {
  static const auto* reads = new absl::flat_hash_set<std::string>{"Placeholder", "ReadVariableOp", "ResourceGather",
                                                                  "ResourceGatherNd", "VariableShape"};
  if (reads->contains(op)) return true;
  const tensorflow::OpDef* def = nullptr;
  return tensorflow::OpRegistry::Global()->LookUpOpDef(op, &def).ok() && !def->is_stateful();
}

bool IsProduct(const std::string& op) { return absl::StrContains(op, "MatMul") || op == "Einsum"; }

// Runs what it is given at once: one thread.
class InlinePool : public tensorflow::thread::ThreadPoolInterface {
 public:
  void Schedule(std::function<void()> work) override { work(); }
  int NumThreads() const override { return 1; }
  int CurrentThreadId() const override { return 0; }
};

struct Shares {
  explicit Shares(int num, absl::FunctionRef<void(int)> work) : num(num), left(num), work(work) {}

  // Takes shares until none is left. Late helpers find none, and then `work` may be gone.
  void Work() {
    for (int i = next++; i < num; i = next++) {
      work(i);
      if (--left == 0) done.Notify();
    }
  }

  const int num;
  std::atomic<int> next{0};
  std::atomic<int> left;
  absl::FunctionRef<void(int)> work;
  absl::Notification done;
};

}  // namespace

bool IsDivisible(const GraphSpec& spec) {
  return std::all_of(spec.def.node().begin(), spec.def.node().end(),
                     [](const tensorflow::NodeDef& node) { return MayDivide(node.op()); });
}

GraphCost EstimateCost(const GraphSpec& spec, int64_t row_bytes) {
  GraphCost cost;
  cost.divisible = IsDivisible(spec);
  cost.row_bytes = row_bytes;
  absl::flat_hash_map<std::string, const tensorflow::NodeDef*> nodes;
  for (const tensorflow::NodeDef& node : spec.def.node()) nodes[node.name()] = &node;
  for (const tensorflow::NodeDef& node : spec.def.node()) {
    if (!IsProduct(node.op())) continue;
    for (std::string input : node.input()) {
      std::string name = input.substr(0, input.find(':'));
      while (nodes.contains(name) && nodes[name]->op() == "Identity") {
        name = nodes[name]->input(0).substr(0, nodes[name]->input(0).find(':'));
      }
      const auto feed = std::find(spec.feeds.begin(), spec.feeds.end(), name);
      if (feed == spec.feeds.end()) continue;
      const Source& source = spec.sources[feed - spec.feeds.begin()];
      if (source.kind == Source::Kind::kEnv) cost.matrices.push_back(source.index);
    }
  }
  return cost;
}

int NumShares(const GraphCost& cost, const std::vector<tensorflow::Tensor>& env, int64_t num_rows, int num_threads) {
  if (!cost.divisible || num_threads < 2) return 1;
  double row = cost.row_bytes * kNanosecondsPerByte;
  for (int matrix : cost.matrices) row += env[matrix].NumElements() * kNanosecondsPerProduct;
  const int64_t worth = static_cast<int64_t>(num_rows * row / kWorthSharing);
  return std::max<int64_t>(1, std::min<int64_t>({worth, num_threads, num_rows / 2}));
}

void RunShares(const tensorflow::DeviceBase::CpuWorkerThreads* workers, int num, absl::FunctionRef<void(int)> work) {
  if (num == 1) return work(0);
  const auto shares = std::make_shared<Shares>(num, work);
  for (int i = 1; i < num; ++i) workers->workers->Schedule([shares] { shares->Work(); });
  shares->Work();
  // The others began at about the same time: they are nearly done, and sleeping would take longer.
  for (int spin = 0; spin < 2000 && shares->left > 0; ++spin) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  shares->done.WaitForNotification();
}

std::unique_ptr<tensorflow::Device> MakeSerialDevice(tensorflow::Device* device) {
  static auto* pool = new InlinePool;
  if (device->tensorflow_cpu_worker_threads() == nullptr || device->tensorflow_cpu_worker_threads()->num_threads < 2) {
    return nullptr;
  }
  return tensorflow::RenamedDevice::NewRenamedDevice(device->name(), device, /*owns_underlying=*/false,
                                                     /*isolate_session_state=*/false, pool);
}

}  // namespace recursion
}  // namespace tf_ext
