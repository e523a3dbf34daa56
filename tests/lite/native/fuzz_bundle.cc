// Damaged bundles, for the sanitizers: fuzz_bundle RUNTIME BUNDLE.tfxlite ROUNDS. Each is a copy of exactly its own size, so that a
// byte read beyond it is found.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "custom_ops/lite_delegate/tf_ext_lite.h"

namespace {

constexpr char kOfPlans[] = "0192-,:[]{}\"ae. \\u\n\x80\xff";

std::string Damaged(const std::string& whole, std::mt19937_64& random) {
  const auto below = [&random](std::size_t most) { return static_cast<std::size_t>(random() % most); };
  std::string data = whole;
  const std::size_t plan = 16 + static_cast<unsigned char>(whole[8]) + 256u * static_cast<unsigned char>(whole[9]);
  for (std::size_t i = below(8); i-- > 0;) {
    const std::size_t at = below(4) == 0 ? below(data.size()) : 16 + below(plan - 16);
    switch (below(4)) {
      case 0: data[at] = static_cast<char>(random()); break;
      case 1: data[at] = kOfPlans[below(sizeof(kOfPlans) - 1)]; break;
      case 2: data[at % 16] = static_cast<char>(random()); break;
      default: {  // a number becomes another one
        const std::size_t digit = data.find_first_of("0123456789", at);
        if (digit != std::string::npos) data[digit] = static_cast<char>('0' + below(10));
      }
    }
  }
  if (below(5) == 0) data.resize(below(data.size()));
  return data;
}

// What became of it: a status.
int Try(TfExtLiteEngine* engine, const std::string& bytes, std::vector<std::vector<char>>* kept) {
  kept->emplace_back(bytes.begin(), bytes.end());
  kept->back().shrink_to_fit();
  int32_t model = -1;
  TfExtLiteStatus status = TfExtLiteAddModelFromMemory(engine, kept->back().data(), kept->back().size(), &model);
  if (status != kTfExtLiteOk) return status;
  std::vector<std::vector<char>> memory;
  std::vector<TfExtLiteBuffer> inputs, outputs;
  TfExtLiteTensor tensor;
  const auto buffer = [&] {
    memory.emplace_back(tensor.bytes);
    return TfExtLiteBuffer{memory.back().data(), tensor.bytes};
  };
  for (int32_t i = 0; i < TfExtLiteInputCount(engine, model); ++i) {
    TfExtLiteInput(engine, model, i, &tensor);
    if (tensor.bytes > 1 << 20) return -1;
    inputs.push_back(buffer());
  }
  for (int32_t i = 0; i < TfExtLiteOutputCount(engine, model); ++i) {
    TfExtLiteOutput(engine, model, i, &tensor);
    if (tensor.bytes > 1 << 20) return -1;
    outputs.push_back(buffer());
  }
  return TfExtLiteRequest(engine, model, inputs.data(), inputs.size(), outputs.data(), outputs.size(), nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::ifstream file(argv[2], std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::mt19937_64 random(7);
  std::map<int, int> became;
  for (int round = 0; round < std::atoi(argv[3]); ++round) {
    const char* keys[] = {"runtime", "workers"};
    const char* values[] = {argv[1], "cpu"};
    TfExtLiteEngine* engine = nullptr;
    if (TfExtLiteEngineCreate(keys, values, 2, &engine) != kTfExtLiteOk) return 3;
    std::vector<std::vector<char>> kept;
    ++became[Try(engine, whole, &kept)];
    for (int i = 0; i < 200; ++i) ++became[Try(engine, Damaged(whole, random), &kept)];
    // Statistics name what the bundles are called.
    char* text = TfExtLiteStatistics(engine);
    if (text == nullptr) return 4;
    TfExtLiteFree(text);
    TfExtLiteEngineDelete(engine);
  }
  for (const auto& [status, count] : became) std::printf("%d: %d\n", status, count);
  return became[kTfExtLiteOk] > 0 && became[kTfExtLiteDataLoss] > 0 && became[kTfExtLiteInternal] == 0 ? 0 : 1;
}
