/* Has COMGR compile OpenCL sources for gfx90a, with flags, and prints a digest of each program. COMGR and its functions
 * are looked up, as by HIP's runtime. Use: compiler SOURCE [FLAG ...] */
#include <amd_comgr.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

#define CALL(name, ...)                                                                                                \
  do {                                                                                                                 \
    __typeof__(&amd_comgr_##name) function = dlsym(library, "amd_comgr_" #name);                                       \
    if (!function || function(__VA_ARGS__) != AMD_COMGR_STATUS_SUCCESS) {                                              \
      printf("amd_comgr_" #name " failed\n");                                                                          \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static amd_comgr_data_set_t act(amd_comgr_action_kind_t kind, const char *isa, amd_comgr_data_set_t inputs,
                                amd_comgr_language_t language, const char **flags, size_t count) {
  amd_comgr_action_info_t info;
  amd_comgr_data_set_t results;
  CALL(create_action_info, &info);
  if (isa)
    CALL(action_info_set_isa_name, info, isa);
  CALL(action_info_set_language, info, language);
  CALL(action_info_set_logging, info, true);
  CALL(action_info_set_option_list, info, flags, count);
  CALL(create_data_set, &results);
  CALL(do_action, kind, info, inputs, results);
  CALL(destroy_action_info, info);
  return results;
}

static void print_digest(const char *what, amd_comgr_data_set_t set, amd_comgr_data_kind_t kind) {
  size_t count = 0;
  CALL(action_data_count, set, kind, &count);
  printf("%s %zu:", what, count);
  for (size_t index = 0; index < count; ++index) {
    amd_comgr_data_t data;
    size_t size = 0;
    unsigned digest = 5381;
    CALL(action_data_get_data, set, kind, index, &data);
    CALL(get_data, data, &size, NULL);
    char *bytes = malloc(size + 1);
    CALL(get_data, data, &size, bytes);
    bytes[size] = 0;
    for (size_t at = 0; bytes[at] || (kind != AMD_COMGR_DATA_KIND_LOG && at < size); ++at)
      digest = digest * 33 + (unsigned char)bytes[at];
    printf(" %08x", digest);
    free(bytes);
  }
  printf("\n");
}

int main(int count, char **words) {
  library = dlopen("libamd_comgr.so.2", RTLD_NOW | RTLD_LOCAL);
  static char source[65536];
  FILE *file = fopen(words[1], "r");
  if (!library || !file)
    return 2;
  const size_t size = fread(source, 1, sizeof source, file);
  fclose(file);
  amd_comgr_data_t data;
  amd_comgr_data_set_t inputs;
  CALL(create_data, AMD_COMGR_DATA_KIND_SOURCE, &data);
  CALL(set_data, data, size, source);
  CALL(set_data_name, data, "source.cl");
  CALL(create_data_set, &inputs);
  CALL(data_set_add, inputs, data);
  const char **flags = (const char **)words + 2;
  const char *const isa = "amdgcn-amd-amdhsa--gfx90a";
  amd_comgr_data_set_t bitcode =
      act(AMD_COMGR_ACTION_COMPILE_SOURCE_TO_BC, isa, inputs, AMD_COMGR_LANGUAGE_OPENCL_2_0, flags, count - 2);
  if (getenv("LINK_WITHOUT_ISA"))
    bitcode = act(AMD_COMGR_ACTION_LINK_BC_TO_BC, NULL, bitcode, AMD_COMGR_LANGUAGE_NONE, NULL, 0);
  const amd_comgr_data_set_t relocatable =
      act(AMD_COMGR_ACTION_CODEGEN_BC_TO_RELOCATABLE, isa, bitcode, AMD_COMGR_LANGUAGE_NONE, NULL, 0);
  const amd_comgr_data_set_t program =
      act(AMD_COMGR_ACTION_LINK_RELOCATABLE_TO_EXECUTABLE, isa, relocatable, AMD_COMGR_LANGUAGE_NONE, NULL, 0);
  print_digest("logs", bitcode, AMD_COMGR_DATA_KIND_LOG);
  print_digest("programs", program, AMD_COMGR_DATA_KIND_EXECUTABLE);
  return 0;
}
