// A library that calls back.
__attribute__((noinline)) static void inside(void (*call)(int)) {
  call(16);
  __asm__ volatile(""); // not a tail call
}
void through(void (*call)(int)) {
  inside(call);
  __asm__ volatile("");
}
