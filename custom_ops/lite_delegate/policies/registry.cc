// The policies by name.

#include "custom_ops/lite_delegate/policies/common.h"

namespace tf_ext {
namespace lite {
namespace {

using Factory = std::unique_ptr<Policy> (*)();

struct Entry {
  const char* name;
  Factory make;
};

// The first is the default.
constexpr Entry kEntries[] = {
    {"adaptive", MakeAdaptive},
    {"fixed", MakeFixed},
    {"round_robin", MakeRoundRobin},
    {"shortest_expected_latency", MakeShortestExpectedLatency},
    {"heft", MakeHeft},
    {"heft_reserved", MakeHeftReserved},
    {"least_slack", MakeLeastSlack},
};

}  // namespace

std::unique_ptr<Policy> MakePolicy(const std::string& name) {
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry.make();
  }
  return nullptr;
}

const std::vector<std::string>& PolicyNames() {
  static const std::vector<std::string>* const names = [] {
    auto* result = new std::vector<std::string>;
    for (const Entry& entry : kEntries) result->push_back(entry.name);
    return result;
  }();
  return *names;
}

}  // namespace lite
}  // namespace tf_ext
