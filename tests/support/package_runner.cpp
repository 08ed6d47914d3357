// package_runner PACKAGE ROWS: what a package of AOTInductor makes of (ROWS, 64) ones: the sum of
// each result, and whether this process has a Python.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <ATen/ops/ones.h>
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>

int main(int, char** argv) {
  torch::inductor::AOTIModelPackageLoader loader(argv[1]);
  const auto x = at::ones({std::atoi(argv[2]), 64});
  for (const auto& result : loader.run({x})) {
    std::printf("%.9g\n", result.sum().item().toDouble());
  }
  std::printf("python: %s\n", dlsym(RTLD_DEFAULT, "Py_IsInitialized") == nullptr ? "none" : "here");
}
