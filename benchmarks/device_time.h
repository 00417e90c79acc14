// CPU time of the threads that execute kernels of a virtual device.
#pragma once

#include <dirent.h>

#include <fstream>
#include <string>

// Seconds of CPU time of all threads whose name begins with "luthier".
static double device_time() {
  double sum = 0;
  DIR *tasks = opendir("/proc/self/task");
  while (const dirent *entry = readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + entry->d_name;
    std::string name;
    std::ifstream(folder + "/comm") >> name;
    double nanoseconds = 0;
    if (name.rfind("luthier", 0) == 0 && std::ifstream(folder + "/schedstat") >> nanoseconds)
      sum += nanoseconds * 1e-9;
  }
  closedir(tasks);
  return sum;
}
