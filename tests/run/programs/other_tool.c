// A tools library besides Luthier's. It counts questions about agents; or, if an environment variable says so, it is ROCr
// to Luthier's library, with a table as ROCm 6 has it or with one of an unknown order.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint32_t major, size, step, reserved;
} Version;
typedef struct {
  Version version;
  Version *core, *amd, *finalizer, *image;
} Root;
typedef int (*AgentInfo)(uint64_t, int, void *);
typedef bool (*Load)(Root *, uint64_t, uint64_t, const char *const *);

enum { kAgentInfo = 6, kOld = 48, kNew = 73 };  // functions before it; functions of the AMD table

static AgentInfo ask;
static int questions;

static int count_question(uint64_t agent, int attribute, void *value) {
  ++questions;
  return ask(agent, attribute, value);
}

static void tell(void) { fprintf(stderr, "other tool: %d questions\n", questions); }

// Where ROCm 6 has a function of ROCm 5.2's table, both counted from 0.
static int moved(int place) { return place < 16 ? place : place < 47 ? place + 2 : place + 5; }

bool OnLoad(Root *root, uint64_t version, uint64_t failed_count, const char *const *failed) {
  const char *path = getenv("TEST_LUTHIER_TOOLS");
  if (!path) {
    void **functions = (void **)(root->core + 1);
    ask = (AgentInfo)functions[kAgentInfo];
    functions[kAgentInfo] = (void *)count_question;
    atexit(tell);
    return true;
  }
  void *library = dlopen(path, RTLD_NOW);
  Load load = library ? (Load)dlsym(library, "OnLoad") : NULL;
  if (!load)
    return false;
  static struct {
    Version version;
    void *functions[kNew];
  } table;
  void **old = (void **)(root->amd + 1);
  for (int place = 0; place < kOld; ++place)
    table.functions[moved(place)] = old[place];
  table.version = (Version){getenv("TEST_UNKNOWN") ? 1 : 2, sizeof table, 6, 0};
  Root copy = *root;
  copy.amd = &table.version;
  load(&copy, version, failed_count, failed);
  for (int place = 0; place < kOld; ++place)
    old[place] = table.functions[moved(place)];
  return true;
}

void OnUnload(void) {}
