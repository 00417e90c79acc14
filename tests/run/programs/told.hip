// What a debugger tells of variables, beside what the program itself prints of them where it is compiled with -DSAY.
// A line with TELL is one statement: before it the variables have what is printed.
#include "check.h"

#ifdef SAY
template <typename T> __device__ void say(int line, const char *name, T value) {
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    printf("%d %s %d %llx\n", line, name, (int)(blockIdx.x * blockDim.x + threadIdx.x), bits);
}
#define TELL(variable) say(__LINE__, #variable, variable);
#else
#define TELL(variable)
#endif

struct Pair {
    short first, second;
    float third;
};

__device__ __attribute__((noinline)) long long collatz(unsigned number, unsigned char most) {
    int turns = 0;
    long long sum = 0;
    while (number != 1 && turns < most) {
        TELL(number) TELL(turns) TELL(sum) sum += number;
        number = number % 2 ? 3 * number + 1 : number / 2;
        turns++;
    }
    TELL(most) TELL(number) TELL(turns) TELL(sum) sum = sum << 32 | turns;
    TELL(sum) return sum;
}

__device__ float middle(Pair pair, double weight) {
    bool heavy = weight > 0.5;
    double mixed = pair.first * weight + pair.third + pair.second;
    TELL(pair) TELL(weight) TELL(heavy) TELL(mixed) float rounded = (float)mixed;
    TELL(rounded) rounded += 0.5f;
    TELL(rounded) bool light = !heavy;
    return light ? -rounded : rounded;
}

extern "C" __global__ void values(const int *in, volatile long long *out, int count) {
    __shared__ int shared[64];
    int item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= count) {
        return;
    }
    int value = in[item];
    TELL(item) TELL(value) TELL(count) shared[threadIdx.x] = value * 3;
    __syncthreads();
    int next = shared[(threadIdx.x + 1) % 64];
    TELL(next) int doubled = next * 2;
    Pair pair = {(short)(value - doubled), (short)next, value / 4.0f};
    signed char small = (signed char)(value * 5);
    TELL(pair) TELL(small) long long wide = (long long)next << 33 | small;
    if (value % 3 == 0) {
        int third = value / 3;
        TELL(third) TELL(wide) wide += third;
        wide ^= 1;
    } else {
        int rest = value % 3;
        TELL(rest) TELL(wide) wide -= rest;
        wide ^= 2;
    }
    float average = middle(pair, 1.0 / (value + 1));
    TELL(average) TELL(wide) out[item] = wide;
    long long steps = collatz(value + 1, 20);
    TELL(steps) out[item] += (long long)average + steps;
}

int main() {
    const int count = 128;
    std::vector<int> start(count);
    for (int i = 0; i < count; i++) {
        start[i] = i * 7 % 31;
    }
    int *in = on_device(start);
    long long *out = on_device(std::vector<long long>(count));
    values<<<2, 64>>>(in, out, count);
    HIP(hipDeviceSynchronize());
    return 0;
}
