// What N neighbours of a factor need of one tensor that they are computed from.
#pragma once

namespace rt {

// The largest vectors that one instruction loads, one after the other.
template <int N, class T>
RT_FN void load_run(vec<T, N>& to, const T* from) {
  constexpr int widest = 16 / sizeof(T) < N ? 16 / sizeof(T) : N;
  RT_UNROLL
  for (int first = 0; first < N; first += widest) {
    const auto part = load<widest>(from + first);
    RT_UNROLL
    for (int i = 0; i < widest; ++i) to[first + i] = part[i];
  }
}

// `Group` neighbours share an element, all of them if 0. `Dense`: elements lie side by side.
template <class T, int N, int Group, bool Dense>
struct run {
  static constexpr bool ONE = Group == 0 || Group % N == 0;
  static constexpr bool EVEN = !ONE && N % Group == 0;
  static constexpr int COUNT = ONE ? 1 : EVEN ? N / Group : N;

  vec<T, COUNT> values;

  RT_FN T operator[](int i) const { return values[ONE ? 0 : EVEN ? i / Group : i]; }

  // Of neighbours `first` to `first + N` the first `count` are there. `first` is a multiple of N, or
  // N of the group; `from` is the element of neighbour 0, `step` the distance of two elements.
  RT_FN void load(const T* from, int64_t step, int64_t first, int count) {
    if constexpr (ONE || EVEN) {
      const T* at = from + (Group == 0 ? 0 : first / (Group == 0 ? 1 : Group)) * step;
      if constexpr (Dense) {
        if (count >= N) {
          load_run(values, at);
          return;
        }
      }
      RT_UNROLL
      for (int i = 0; i < COUNT; ++i) values[i] = i * (N / COUNT) < count ? at[i * step] : T{};
    } else {
      RT_UNROLL
      for (int i = 0; i < N; ++i) values[i] = i < count ? from[(first + i) / (Group == 0 ? 1 : Group) * step] : T{};
    }
  }
};

}  // namespace rt
